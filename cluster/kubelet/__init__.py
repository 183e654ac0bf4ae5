"""What kubelet and its plugins say to one another, as published: protos, what protoc makes of them, calls."""
