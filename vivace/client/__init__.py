"""The line: a service in another process or on another machine, behind the same contract."""
