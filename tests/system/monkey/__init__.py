"""The monkey: the robot's real navigator and gate in simulated time, among faults and orders drawn at random.

Not examples but invariants: whatever the base, its odometry, the camera, the link and the operator do, what must never
happen does not happen. A run that breaks one is made as short as it can be, and is a test from then on. What is
simulated is the base, its sensors, the model and all clocks; the deciding and the moving side are the robot's own code.
"""
