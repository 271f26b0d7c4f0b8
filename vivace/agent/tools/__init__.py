"""What a model can do: one class per tool, run under approvals and a sandbox, each answer within a token budget."""
