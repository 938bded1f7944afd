"""A lab of two (or three) real nodes on one machine: network namespaces, sshd and dockerd per node."""
