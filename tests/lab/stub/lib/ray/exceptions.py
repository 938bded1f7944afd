class RayError(Exception):
    pass


class AuthenticationError(RayError):
    pass


class RpcError(RayError):
    pass
