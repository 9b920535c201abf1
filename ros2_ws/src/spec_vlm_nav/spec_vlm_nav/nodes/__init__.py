"""
The two ROS nodes: thin shells that turn messages into calls and results into messages.

`vlm_nav_node` decides, `motion_node` moves; each is its own process, so that neither's crash keeps the robot moving.
No decision about motion is made in here.
"""
