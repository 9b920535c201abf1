"""
The robot: action language, prompt, motion executor, safety gate and exploration policy, and two thin ROS nodes.

Words: an ACTION is one of the ten sentences; a DECISION turns one frame into one action; a MOTION is an action being
carried out. Everything but the `*_node` modules is free of ROS, and nothing here may move the robot on text outside
the action language.
"""
