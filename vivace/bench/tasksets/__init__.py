"""Task sets: an agent's turns on tasks with hidden tests, graded, summed up and compared."""
