"""SGLang: trees for its n-gram worker, by a plug-in (docs/use/sglang.md)."""
