"""The pages over runs, studies and operating points. Draws from what lies on disk, starts nothing."""
