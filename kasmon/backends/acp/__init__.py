"""Any agent that speaks the Agent Client Protocol on its stdio: opencode, gemini, and whatever a profile names."""

from kasmon.backends.acp.backend import AcpBackend, backend

__all__ = ["AcpBackend", "backend"]
