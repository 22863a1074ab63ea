#!/usr/bin/env bash
# Installs a wheel without extras into a new environment and checks size, start-up times, a dump of the demo, and the errors
# for missing packages. usage: base_install.sh WHEEL
set -euo pipefail
cd "$(dirname "$0")/../.."
most_mb=150
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
run="$folder/env/bin"
wheel=$1
before=$(du -sm "$folder/env" | cut -f1)
began=$(date +%s)
"$run/python" -m pip --disable-pip-version-check -q install -c constraints.txt "$wheel"
size=$(($(du -sm "$folder/env" | cut -f1) - before))
echo "installed in $(($(date +%s) - began)) s: $size MB without pip ($("$run/python" -m pip list --format=freeze | cut -d= -f1 | xargs))"
[ "$size" -le "$most_mb" ] || { echo "expected at most $most_mb MB"; exit 1; }

TIMEFORMAT='%R s'
"$run/python" -c "import rescore.decode.cli" # compiles the imported modules
echo -n "import rescore: "; time "$run/python" -c "import rescore"
echo -n "rescore --help: "; time "$run/rescore" --help >/dev/null

"$run/rescore" env
"$run/rescore" run data/demo/greedy --settings data/demo/settings.json --json "$folder/run.json" --drafts "$folder/drafts.jsonl" >/dev/null
"$run/rescore" draw data/demo/greedy --lm data/demo/demo.ngram -o "$folder/pictures" >/dev/null
"$run/rescore" oracle data/demo/sampled >/dev/null
"$run/rescore" lm convert data/demo/demo.ngram "$folder/demo.arpa" >/dev/null
echo "run, draw, oracle, lm convert: done"

# Each of these needs a missing package, and must say how to install it.
missing() {
  local package=$1; shift
  local said
  if said=$("$run/rescore" "$@" 2>&1 >/dev/null); then echo "expected a refusal of: rescore $*"; exit 1; fi
  [ "$(wc -l <<<"$said")" = 1 ] && grep -qF "pip install " <<<"$said" && grep -qF "'$package" <<<"$said" || { echo "rescore $*: $said"; exit 1; }
  echo "$said"
}
missing plotly report data/demo/greedy --settings data/demo/settings.json -o "$folder/report.html"
missing pyarrow run data/demo/greedy --lm data/demo/demo.ngram --drafts "$folder/drafts.parquet"
cp README.md "$folder/text.txt"
"$run/rescore" lm build "$folder/text.txt" --order 2 -o "$folder/words.arpa" >/dev/null
echo "lm build, of words: done"
missing tokenizers lm build "$folder/text.txt" --tokenizer data/demo/tokenizer.json -o "$folder/lm.ngram"
missing transformers generate --model smollm2 hello
