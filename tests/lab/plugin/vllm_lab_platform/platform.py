from vllm.platforms.cpu import CpuPlatform


class LabCpuPlatform(CpuPlatform):
    ray_device_key = "GPU"  # lab-runc declares one per container that asked for GPUs

    @classmethod
    def get_device_communicator_cls(cls) -> str:
        return "vllm_lab_platform.comm.LabCpuCommunicator"
