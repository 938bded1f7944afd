from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator


class LabCpuCommunicator(CpuCommunicator):
    """
    Ranks always talk by torch.distributed (gloo).

    vLLM's CPU group takes shared memory when all ranks agree on one name, which they do across nodes
    too, since only the port is in it; rank 1 then dies: `open shm in SHMManager failed. errno: 2`.
    """

    def _all_group_ranks_share_shm_group_name(self) -> bool:
        return False
