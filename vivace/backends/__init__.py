"""Who answers: the engine process on this machine."""
