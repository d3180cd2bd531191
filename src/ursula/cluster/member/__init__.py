"""A node's own etcd: the program, its process and folder, and how its member comes to be and is watched."""
