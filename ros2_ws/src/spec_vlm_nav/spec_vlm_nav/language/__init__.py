"""What people say to the robot: the words that stop it, recognised without any model."""
