"""Keys of the daemon: who is admitted to which socket, and the end of connections that are not.

key_folder   the folder of ``[security] keys``, with the permissions; makes new keys
gatekeeper   tells libzmq who may connect; follows changes of the folder; its self-test
known_peers  which connection has which key; ends those whose key was removed

What a key may do is decided in ``daemon/core/rights``.
"""
