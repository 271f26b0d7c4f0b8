"""The proof: what vivace and its peers do on this machine, measured side by side, and tables and plots made from it."""
