"""How a call is computed: its arguments declared, its backend chosen, its checks, its results."""
