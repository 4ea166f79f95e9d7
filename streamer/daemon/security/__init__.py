"""Keys of the daemon: who is admitted to which socket, and the end of connections that are not.

key_folder    the folder of ``[security] keys``: the daemon's key, and the permissions of others
new_keys      makes such a folder and keys in it
gatekeeper    tells libzmq who may connect; follows changes of the folder
known_peers   which connection has which key; ends those whose key was removed
self_test     checks that a wrong key is refused

What a key may do is decided in ``daemon/core/rights``.
"""
