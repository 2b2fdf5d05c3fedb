"""What runs inside the sandbox, beside what both sides share."""
