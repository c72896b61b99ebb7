"""Code shared by tiers whose guest cannot listen on a socket of this machine.

`relay` holds the connection to the guest and `attach` reaches it. `launch_spec` describes an agent's start there,
`process_stream` carries its stdin and stdout to `stdio_proxy` here, and `file_transfer` copies folders.
"""
