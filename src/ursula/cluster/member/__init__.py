"""A node's own etcd: the program, its process and folder, and how it becomes a member."""
