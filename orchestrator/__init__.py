"""Serve one large model on a pair of NVIDIA DGX Sparks: plan, render, supervise, measure."""

__version__ = "0.1.0"
