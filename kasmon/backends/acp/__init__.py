"""Any agent that speaks the Agent Client Protocol on its stdio: opencode, gemini, or one named by a profile."""

from kasmon.backends.acp.backend import AcpBackend, backend

__all__ = ["AcpBackend", "backend"]
