"""Code shared by tiers whose guest cannot listen on a socket of this machine.

`relay` listens in the sandbox's place. `attach` connects the `stdio_proxy` of an agent to its sandbox and carries its
stdin and stdout; `launch_spec` describes its start there, and `folder_sync` copies files.
"""
