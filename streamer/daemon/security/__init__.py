"""Keys of the daemon: who is admitted to which socket, and what becomes of those who are not.

key_folder    the folder of ``[security] keys``: the daemon's key, and the permissions of others
new_keys      makes such a folder, and keys in it
gatekeeper    answers libzmq's question who may connect; follows the folder
known_peers   which connection has which key, and ends those whose key was removed
self_test     is a wrong key refused?

What a key may do is decided in ``daemon/core/rights``.
"""
