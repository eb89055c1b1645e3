"""The way out of a sandbox: a proxy outside it, and the rules that it decides by."""
