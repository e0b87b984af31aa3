"""Gateway-owned tools: what runs when the model calls one."""
