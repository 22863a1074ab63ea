"""SGLang: a plug-in that supplies trees to its n-gram worker (docs/use/sglang.md)."""
