"""What the command line refuses, by verb: misuse with status 2, bad data with 1, in one line that names the place.

Whatever can be said before a model is loaded is: most models of Hugging Face here have no weights.
"""

import json
import shlex

import numpy as np
import pytest
from support import cli, dumps, headless_dumps, tiny_transformers
from support.tiny_blockwise import END, V, untrained, write_settings

from rescore.decode.models.exit_heads import ExitForm, ExitHeads
from rescore.lm.build.in_memory import build


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files by the names that the calls below use: dumps, their models and texts; models and what is theirs."""
    folder = tmp_path_factory.mktemp("refusals")
    path = folder.joinpath
    for name in ("folder", "empty", "bare", "d.ngram"):
        path(name).mkdir()
    for name in ("file", "empty.ngram", "empty.jsonl"):
        path(name).touch()
    write_dumps(path)
    write_texts(path)
    write_models(path)
    return folder


def write_dumps(path) -> None:
    """Dumps of 50 tokens; models of them and of others; logits of 20 tokens, and of 21."""
    made = cli.make_dump(path("dump"))
    headless_dumps.write(path("headless"))
    model = cli.make_model(path("lm.ngram"), made)
    cli.make_model(path("ids.ngram"), made, words=None)
    cli.make_model(path("other.ngram"), made, tokenizer="b" * 64)
    cli.NGram.from_tables(model.to_tables(), words=model.words, metadata={"end_of_text": 7}).save(path("seven.ngram"))
    cli.NGram.from_tables(model.to_tables(), metadata={"end_of_text": None}).save(path("bare.ngram"))
    build([[1, 2, 3]], order=2, vocab_size=60, end_of_text=0).save(path("sixty.ngram"))
    path("folder", "dump.json").write_bytes(b"\x00\xff{")
    path("junk.ngram").write_bytes(np.random.default_rng(0).bytes(5000))
    for suffix in ("ngram", "arpa", "arpa.gz", "fst"):
        path(f"cut.{suffix}").write_bytes(path("lm.ngram").read_bytes()[:200])
    for name, size in (("tokenizer.json", dumps.V), ("21.json", 21), ("60.json", 60)):
        cli.make_tokenizer(path(name), size)
    texts = {"tokens": np.zeros(6, np.int64), "offsets": np.array([0, 4, 6])}
    for name, size in (("x.npz", 20), ("z.npz", 21)):
        np.savez(path(name), **texts, logits=np.zeros((6, 3, size), np.float32))
    np.save(path("y.npy"), np.zeros((6, 3, 20), np.float32))


def write_texts(path) -> None:
    np.save(path("a.npy"), np.array([3, 1, 2, 0, 5, 3, 0], np.uint16))
    np.save(path("outside.npy"), np.array([1, 50]))
    np.save(path("empty.npy"), np.zeros(0, np.int64))
    path("a.txt").write_text("w1")
    path("bytes.txt").write_bytes(b"a\xff")
    path("junk.json").write_text("{}")
    path("a.jsonl").write_text('{"text": "w1 w2"}\n')
    path("bad.jsonl").write_text('{"text": "w1"}\n{"text":')


def write_models(path) -> None:
    """Folders of Hugging Face, a model of ours of the same tokens, and n-gram models of these."""
    for name in ("llama", "t5"):
        tiny_transformers.config_of(name, vocab_size=V, eos_token_id=END).save_pretrained(path(name))
        cli.make_tokenizer(path(name, "tokenizer.json"), V)
    for name in ("ours", "renamed"):
        untrained().save(path(name, "model.safetensors"))
        tokenizer = cli.make_tokenizer(path(name, "tokenizer.json"), V)
    tokenizer.write_text(tokenizer.read_text().replace('"w3"', '"v3"'))
    for name, size, metadata in (("24", V, {}), ("25", V + 1, {}), ("tokens", V, {"tokenizer": "0" * 64})):
        text = [np.array([1, 2, 3, 0], np.int32)]
        build(text, order=2, vocab_size=size, end_of_text=END, metadata=metadata).save(path(f"{name}.ngram"))
    write_settings(path("s.json"), path("24.ngram"))
    write_settings(path("seven.json"), path("24.ngram"), slots=7)
    settings = json.loads(path("s.json").read_text())
    for name, value in (("vocab_size", V + 1), ("tokenizer_sha256", "0" * 64)):
        path(f"{name}.json").write_text(json.dumps({**settings, name: value}))
    lines = {"prompts": {"prompt": "w1 w2"}, "strange": {"prompts": "w1"}, "long": {"prompt": [1] * 60}}
    for name, line in lines.items():
        path(f"{name}.jsonl").write_text((json.dumps(line) + "\n") * 3)
    for name, family in (("tiny", "llama"), ("tiny-t5", "t5")):
        tiny_transformers.shared(family).save_pretrained(path(name))
        cli.make_tokenizer(path(name, "tokenizer.json"), tiny_transformers.V)
    ExitHeads(ExitForm(exits=(1,), depth=2, width=32)).save(path("exits"), {})
    calm = dict(format="rescore calm", version=1, threshold=0.5, exits=[1], confidence="softmax", decay=None, length=9)
    for name, value in (("format", "other"), ("threshold", None), ("threshold", 1.5), ("confidence", "luck")):
        path(f"{value}.json").write_text(json.dumps({**calm, name: value}))


IDS = "--vocab-size 50 --end-of-text 0"
GENERATE = "generate --model llama --max-tokens 8"
OURS = "generate --model ours w1"
CALM = "calm generate tiny w5"
CALIBRATE = "calm calibrate tiny --prompts prompts.jsonl -o out"
TRAIN = "train heads tiny --prompts prompts.jsonl --slots 3 -o out"
BENCH = "bench decode --model llama --prompts prompts.jsonl --max-tokens 8"
DUMP = "dump make --model llama --kind greedy --max-tokens 8 -o out"
REDUCE = "dump reduce x.npz -o out"
BUILD = "lm build -o out/lm.ngram"
TEXT = f"{BUILD} a.jsonl --tokenizer tokenizer.json"
MERGE = "lm merge -o out.ngram lm.ngram"
BOTH = ["--lm", "--alpha", "--settings"]

REFUSED = [
    # Names that may have been meant; values that look like options; words that are no paths
    ("generat", 2, ["generate?"]),
    ("lm biuld", 2, ["build?"]),
    ("run DUMP --part heldou", 2, ["heldout?"]),
    ("lm info x.ngram --jsn=y", 2, ["--json?"]),
    ("generate --max 3 hi", 2, ["--max-tokens?"]),
    ("oracle dump --task frist", 2, ["first, second; did you mean first?"]),
    ("run x --alpha -1,2", 2, ["--alpha"]),
    ("run x --alpha=-1,2", 2, ["--alpha"]),
    ("oracle -- --none", 1, ["rescore: --none: "]),
    ("lm build x -ox.txt", 2, ["'x.txt'"]),
    ("oracle ''", 2, ["''"]),
    ("run x --lm ''", 2, ["''"]),
    ("lm info a\0b", 2, [r"'a\x00b'"]),
    # Places that cannot be written
    ("env --json folder", 2, ["folder", "expected a file", "got a folder"]),
    (f"env --json new/{'n' * 300}", 1, [f"new/{'n' * 300}: cannot be written", "too long"]),
    ("lm count x -o file", 2, ["file: expected a folder"]),
    ("dump make --model x --prompts x --kind greedy -o file", 2, ["expected a folder"]),
    ("lm build x -o x.arpa --json ./x.arpa", 2, ["--out, --json", "x.arpa"]),
    ("lm build x -o - --json /dev/stdout", 2, ["--out, --json"]),
    ("run x --drafts -", 2, ["--drafts", "'-'"]),
    ("report x -o report.pdf", 2, ["'report.pdf'", ".html"]),
    # generate
    (f"{GENERATE} --drafter tree w1", 2, ["--drafter", "--heads"]),
    (f"{GENERATE} --heads gone w1", 1, ["gone"]),
    (f"{GENERATE} --heads mtp w1", 1, ["safetensors"]),
    (f"{GENERATE} --lm 25.ngram w1", 1, ["25.ngram", V, V + 1]),
    (f"{GENERATE} --lm tokens.ngram w1", 1, ["tokens.ngram"]),
    (f"{GENERATE} --lm gone.ngram w1", 1, ["gone.ngram"]),
    (f"{GENERATE} --lm 24.ngram --lm 24.ngram w1", 2, ["--drafter", "--lm", "2"]),
    (f"{GENERATE} --drafter racer --nodes auto w1", 2, ["--nodes"]),
    (f"{GENERATE} --layout rows w1", 2, ["--nodes"]),
    ("generate --model t5 --drafter racer --layout tree w1", 2, ["--layout"]),
    (f"{GENERATE} --without heads --without text w1", 2, ["--without", "source"]),
    (f"{GENERATE} --drafter racer --without text w1", 2, ["--without", "racer", "blend"]),
    (f"{OURS} --drafter tree --without text", 2, ["--without text", "blend"]),
    (f"{GENERATE} --paths 3 w1", 2, ["--paths"]),
    (f"{GENERATE} --drafter none --lm 24.ngram w1", 2, ["--lm"]),
    (f"{GENERATE} --draft-model no/such/model w1", 1, ["no/such/model"]),
    (f"{GENERATE} --drafter draft-model w1", 2, ["--drafter", "--draft-model"]),
    (f"{GENERATE} --heads llama --drafter neural w1", 2, ["--drafter", "--neural"]),
    (f"{GENERATE} --heads llama --settings gone w1", 1, ["gone"]),
    (f"{GENERATE} --heads llama --settings vocab_size.json w1", 1, [V + 1, V]),
    (f"{GENERATE} --heads llama --settings tokenizer_sha256.json w1", 1, ["0000"]),
    (f"{GENERATE} --chat w1", 1, ["llama"]),
    (f"{GENERATE} --device teapot w1", 2, ["--device"]),
    (f"{GENERATE} --top-p 0.5 w1", 2, ["--top-p", "--temperature", "0"]),
    (f"{GENERATE} --sample-top-k 5 w1", 2, ["--sample-top-k"]),
    (f"{GENERATE} --temperature=-1 w1", 2, ["--temperature", "0", "'-1'"]),
    (f"{GENERATE} --top-p 0 w1", 2, ["--top-p", "1", "'0'"]),
    (f"{GENERATE} --max-tokens 64 w1", 1, ["prompt 1", "--max-tokens", "64"]),
    (f"{GENERATE} --memory strange.jsonl w1", 1, ["strange.jsonl"]),
    (f"{GENERATE} --memory out --drafter none w1", 2, ["--memory"]),
    (f"{GENERATE} --lm 24.ngram w1", 1, ["safetensors"]),  # without a mistake the weights are missed
    ("generate --model no/such/model w1", 1, ["no/such/model"]),
    (f"{OURS} ''", 1, ["prompt 2", "''"]),
    (f"{OURS} --stop ''", 2, ["--stop"]),
    (f"{OURS} --alpha 0.4", 2, ["--alpha", "--lm"]),
    (f"{OURS} --lm 24.ngram --alpha 0.4,0.3", 2, ["--alpha", "3", "2"]),
    (f"{OURS} --drafter drawn", 2, ["--drafter", "--temperature", "0"]),
    (f"{OURS} --prediction none.txt", 1, ["none.txt"]),
    (f"{OURS} --prediction bytes.txt", 1, ["bytes.txt", "UTF-8", "0xff", "1"]),
    (f"{OURS} --draft-model renamed", 1, ["tokenizer"]),
    (f"{GENERATE} --heads early:1 --draft-model llama w1", 2, ["--draft-model", "early"]),
    (f"{DUMP} --heads early:1 --prompts prompts.jsonl", 2, ["early:1"]),
    (f"{OURS} --settings s.json --lm 24.ngram", 2, BOTH),
    (f"{OURS} --settings s.json --drafter drawn", 2, ["--settings"]),
    (f"{OURS} --settings seven.json", 1, ["seven.json", "7"]),
    (f"{GENERATE} --regex a --tools junk.json w1", 2, ["--tools", "--regex"]),
    (f"{GENERATE} --grammar none.lark w1", 1, ["none.lark"]),
    (f"{GENERATE} --tools a.txt w1", 1, ["--tools"]),
    # calm
    (CALM, 2, ["--calibration", "--threshold"]),
    (f"{CALM} --threshold 0.5 --confidence classifier", 1, ["classifier"]),
    (f"{CALM} --threshold 0.5 --exits exits --layers 1,2", 2, ["--layers"]),
    (f"{CALM} --threshold 0.5 --layers 5", 1, ["exits", "1", "[5]"]),
    (f"{CALM} --calibration x --decay 4", 2, ["--calibration"]),
    (f"{CALM} --calibration other.json", 1, ["format", "'rescore calm'", "'other'"]),
    (f"{CALM} --calibration None.json", 1, ["threshold"]),
    (f"{CALM} --calibration 1.5.json", 1, ["value", "0", "1.5"]),
    (f"{CALM} --calibration luck.json", 1, ["confidence", "'luck'"]),
    ("calm generate ours --threshold 0.5 w5", 1, ["blockwise"]),
    ("calm train tiny-t5 --prompts prompts.jsonl -o out", 1, ["language"]),
    ("calm train tiny --prompts prompts.jsonl -o out --max-tokens 8 --limit 2", 1, ["10"]),
    (f"{CALIBRATE} --thresholds 0.5,0.6", 2, ["--thresholds", "'0.5,0.6'"]),
    (f"{CALIBRATE} --delta 1", 2, ["--delta", "1"]),
    (f"{CALIBRATE} --skip 20", 1, ["--skip", "20"]),
    # train
    (f"{TRAIN} --max-tokens 9000", 1, ["9000"]),
    (f"{TRAIN} --temperature 0,x", 2, ["--temperature", "'x'"]),
    (f"{TRAIN} --prompts gone", 1, ["gone"]),
    (f"{TRAIN} --tokens 0", 2, ["--tokens", "1"]),
    ("train heads tiny-t5 --prompts prompts.jsonl -o out", 1, ["language"]),
    # bench, dump make
    (BENCH, 1, ["safetensors"]),
    (f"{BENCH} --without lm", 2, ["--without", "--only"]),
    (f"{BENCH} --only tree", 2, ["--only", "'tree'", "16"]),
    (f"{BENCH} --lm 25.ngram", 1, ["25.ngram", V, V + 1]),
    (f"{BENCH} --prompts long.jsonl", 1, ["--max-tokens", "8", "64"]),
    (f"{BENCH} --memory gone", 1, ["gone"]),
    (f"{DUMP} --prompts prompts.jsonl", 1, ["safetensors"]),
    (f"{DUMP} --prompts strange.jsonl", 1, ["1"]),
    (f"{DUMP} --prompts long.jsonl", 1, ["--max-tokens", "8", "64"]),
    # dump info, dump reduce
    ("dump info gone", 1, ["dump.json"]),
    ("dump info folder", 1, ["folder/dump.json"]),
    ("dump x", 2, ["argument ACTION", "'x'"]),
    (f"{REDUCE} --kind greedy --seed 3", 2, ["--seed", "--kind"]),
    (f"{REDUCE} --kind sampled", 2, ["--kind", "--temperature"]),
    (f"{REDUCE} --kind sampled --temperature 1", 1, ["seeds"]),
    ("dump reduce x.npz y.npy -o out --tokens x.npz --kind forced", 2, ["--tokens", "2", "1"]),
    ("dump reduce x.npz y.npy -o out --kind forced", 1, ["y.npy", "--tokens"]),
    (f"{REDUCE} --kind forced --end-of-text </s>", 2, ["--end-of-text", "--tokenizer"]),
    (f"{REDUCE} --kind forced --tokenizer 21.json", 1, ["21.json", "20"]),
    ("dump reduce x.npz z.npz -o out --kind forced", 1, ["z.npz", "[n, h, V]", "[n, 3, 20]", "[6, 3, 21]"]),
    ("dump reduce x.npz folder/../x.npz -o out --kind forced", 2, ["different"]),
    ("dump reduce none.npz --kind greedy -o out", 1, ["such"]),
    # oracle, draw
    ("oracle dump --task x", 2, ["--task", "'x'"]),
    ("oracle gone", 1, ["folder"]),
    ("draw dump --sequence 1", 2, ["--sequence", "--position"]),
    ("draw dump --position 0 --best 2", 2, ["--best", "--position"]),
    ("draw dump --position 29", 2, ["--position", "29", "0", "'first'", "28"]),
    ("draw dump --position 0 --sequence 4", 2, ["4", "'first'"]),
    ("draw dump --position 0 --sequence 8", 2, ["--sequence", "8", "'first'", "0"]),
    ("draw dump -o x.svg --format png", 2, ["--format", "x.svg"]),
    ("draw dump --settings s.json --lm x", 2, BOTH),
    ("draw dump --settings s.json --top-k 2", 2, ["--top-k", "--settings"]),
    ("draw dump --position 0 --task first --task second", 2, ["--position"]),
    ("draw dump -o x.png --best 2", 2, ["x.png", "--best", "1"]),
    ("draw dump -o x.jpg", 2, ["folder"]),
    ("draw dump -o lm.ngram/x", 2, ["lm.ngram"]),
    ("draw dump --tokenizer tokenizer.json -o out", 1, ["tokenizer.json", "sha256", "e3b0c4"]),
    ("draw headless", 2, ["lattices"]),
    # run
    ("run dump --top-k 7", 2, ["--top-k", "7", "6"]),
    (f"run dump --paths {'9' * 30}", 2, ["--paths", "1024", "9" * 30]),
    ("run dump --lm lm.ngram --alpha nan", 2, ["--alpha", "1000", "'nan'"]),
    ("run dump --lm lm.ngram --alpha 0.5,", 2, ["--alpha", "''"]),
    ("run dump --lm lm.ngram --alpha 0.5,0.4", 2, ["--alpha", "3", "2"]),
    ("run dump --lm lm.ngram=x", 2, ["--lm", "lm.ngram=x'", "'x'"]),
    ("run dump --lm lm.ngram=-1", 2, ["--lm", "1000", "-1"]),
    ("run dump --alpha 0.5", 2, ["--alpha", "--lm"]),
    ("run dump --task third", 2, ["--task", "'third'"]),
    ("run dump dump", 2, ["each"]),
    ("run dump --tune-sequences 1", 2, ["--tune-sequences", "--part"]),
    ("run dump --color", 2, ["unrecognized arguments", "--color", "--help"]),
    ("run gone --lm lm.ngram", 1, ["gone", "dump.json"]),
    ("run empty --lm lm.ngram", 1, ["empty/dump.json"]),
    ("run dump --lm gone.ngram", 1, ["gone.ngram"]),
    ("run dump --lm dump", 1, ["arpa.gz"]),
    ("run dump --lm empty.ngram", 1, ["empty.ngram"]),
    ("run dump --lm junk.ngram", 1, ["junk.ngram"]),
    ("run dump --lm lm.ngram --lm sixty.ngram --drafts d.jsonl", 1, ["sixty.ngram", "60", "50"]),
    ("run dump --lm lm.ngram --lm other.ngram --json r.json", 1, ["other.ngram"]),
    ("run dump --settings junk.json", 1, ["junk.json", "'rescore settings'"]),
    # tune
    ("tune dump --lm lm.ngram --lm lm.ngram", 2, ["--lm", "lm.ngram"]),
    ("tune dump --lm lm.ngram --top-k 7", 2, ["--top-k", "7", "6"]),
    ("tune dump --lm lm.ngram -o folder", 2, ["folder"]),
    ("tune dump --lm lm.ngram --tune-sequences 0", 2, ["--tune-sequences", "1"]),
    ("tune dump --lm lm.ngram --tune-sequences 3", 1, ["none"]),
    ("tune dump --lm x.arpa", 1, ["settings"]),
    ("tune dump --lm sixty.ngram", 1, ["sixty.ngram", "60", "50"]),
    ("tune headless --lm lm.ngram --lm lm.ngram", 2, ["--lm", "rescore"]),
    ("tune dump", 2, ["--lm"]),
    # report
    ("report dump -o r.html --markdown folder", 2, ["write"]),
    ("report dump -o r.html --sequences x", 2, ["--sequences"]),
    ("report dump -o r.html --task third", 2, ["--task", "'third'"]),
    ("report dump -o r.html --settings s.json --lm lm.ngram", 2, ["--lm", "--settings"]),
    ("report dump -o r.html --json - --markdown -", 2, ["--markdown", "--json"]),
    ("report dump -o r.html --neural-paths 4", 2, ["--neural-alpha", "--neural-paths"]),
    ("report dump -o r.html --neural llama --neural-alpha nan", 2, ["0"]),
    ("report dump -o r.html --neural no/such/model", 1, ["no/such/model"]),
    ("report dump -o r.html --neural tiny-t5", 1, ["language"]),
    ("report headless -o r.html --lm lm.ngram --alpha 0.5", 2, ["--alpha", "without"]),
    ("report headless -o r.html --lm lm.ngram --neural llama", 2, ["--neural", "has none"]),
    # lm build
    (f"{BUILD} none.npy {IDS}", 1, ["none.npy"]),
    (f"{BUILD} a.jsonl --vocab-size 50 --end-of-text 50", 2, ["--end-of-text", "50", "0..49"]),
    (f"{TEXT} --vocab-size 20", 2, ["--vocab-size", "20", "50"]),
    (f"{BUILD} a.jsonl --end-of-text x", 2, ["--end-of-text", "--tokenizer"]),
    (f"{BUILD} a.jsonl --min-count 2,2", 2, ["--min-count", "1,1,2,4", "'2,2'"]),
    (f"{TEXT} --order 2 --min-count 1,1,1", 2, ["--min-count", "--order", "min_counts", "2", "3"]),
    (f"{BUILD} a.jsonl --theta 1 --max-ngrams 9", 2, ["--max-ngrams", "--theta"]),
    (f"{TEXT} --discount-fallback 0.5,1,1.5", 2, ["katz", "--discount-fallback", "--method"]),
    (f"{BUILD} a.jsonl --discount-fallback 1,2,4", 2, ["--discount-fallback", "3", "0.5,1,1.5", "'1,2,4'"]),
    (f"{TEXT} --method kneser-ney --textbook", 2, ["--textbook", "--method"]),
    ("lm build a.jsonl -o lm.bin", 2, ["-o/--out", "'lm.bin'", "arpa.gz"]),
    (f"{TEXT} -o a.jsonl/x.ngram", 2, ["x.ngram", "a.jsonl"]),
    (f"{BUILD} a.jsonl {IDS}", 1, ["a.jsonl", "--tokenizer", "tokenizer.json"]),
    (f"{BUILD} a.jsonl a.npy", 2, ["--tokenizer", "--vocab-size", "--end-of-text"]),
    (f"{BUILD} a.npy --vocab-size 3 --end-of-text 0", 1, ["a.npy", "0..2", "3"]),
    (f"{BUILD} empty.jsonl --tokenizer tokenizer.json", 1, ["least"]),
    (f"{BUILD} bad.jsonl --tokenizer tokenizer.json --text-field body", 1, ["2", "1", "bad.jsonl", '"body"']),
    (f"{BUILD} a.jsonl --tokenizer bad.jsonl", 1, ["tokenizer.json"]),
    (f"{BUILD} a.npy {IDS} --max-ngrams 49", 1, ["unigrams"]),
    ("lm build a.txt -o - --json -", 2, ["--out", "--json"]),
    ("lm build a.txt -o - --arpa -", 2, ["--arpa", "--out"]),
    (f"{BUILD} a.jsonl --model llama --tokenizer tokenizer.json", 2, ["--tokenizer", "--model"]),
    (f"{BUILD} a.jsonl --model llama --vocab-size 23", 1, ["23", "24"]),
    (f"{BUILD} a.jsonl --model no/such/model", 1, ["no/such/model"]),
    # lm convert, info and verify
    ("lm info cut.ngram", 1, ["cut.ngram"]),
    ("lm info cut.arpa", 1, ["cut.arpa"]),
    ("lm info cut.arpa.gz", 1, ["cut.arpa.gz"]),
    ("lm info cut.fst", 1, ["cut.fst"]),
    ("lm info d.ngram", 1, ["d.ngram"]),
    ("lm verify gone.ngram", 1, ["gone.ngram"]),
    ("lm convert lm.ngram m.bin", 2, ["ngram"]),
    ("lm convert m.bin m.fst", 1, ["ngram"]),
    ("lm convert gone.ngram m.fst", 1, ["gone.ngram"]),
    ("lm convert lm.ngram d.ngram", 2, ["folder"]),
    ("lm convert lm.ngram m.arpa --quantise", 2, ["--quantise"]),
    ("lm convert lm.ngram x.ngram --sentence-ends", 2, ["--sentence-ends", "x.ngram"]),
    ("lm convert lm.ngram x.arpa --symbols x.syms", 2, ["--symbols", "--failure-label"]),
    ("lm convert lm.ngram m.fst --failure-label 3", 1, ["failure_label", "50", "3"]),
    ("lm convert other.ngram m.ngram --tokenizer tokenizer.json", 1, ["other.ngram", "tokenizer"]),
    ("lm convert lm.ngram m.fst --tokenizer 60.json", 1, ["tokenizer"]),
    # lm merge
    (MERGE, 2, ["least"]),
    (f"{MERGE} lm.ngram --weights 1", 2, ["--weights", "2", "1"]),
    (f"{MERGE} lm.ngram --weights 0.5,0.4", 2, ["--weights", "1", "0.5", "0.4"]),
    (f"{MERGE} lm.ngram --weights 1,-1", 2, ["--weights", "0"]),
    (f"{MERGE} lm.ngram --weights 1,0 --tune x", 2, ["argument"]),
    (f"{MERGE} lm.ngram --tune empty.npy", 1, ["empty.npy"]),
    (f"{MERGE} seven.ngram", 1, ["seven.ngram", "end_of_text", "0"]),
    (f"{MERGE} other.ngram --tune a.jsonl --tokenizer tokenizer.json", 1, ["other.ngram"]),
    # lm score
    ("lm score lm.ngram outside.npy", 1, ["outside.npy", "1", "0..49", "50"]),
    ("lm score lm.ngram a.npy --end-of-text 60", 2, ["60", "0..49"]),
    ("lm score other.ngram a.txt --tokenizer tokenizer.json", 1, ["other.ngram", "tokenizer"]),
    ("lm score lm.ngram a.txt --tokenizer 60.json", 1, ["60", "50"]),
    ("lm score lm.ngram a.txt --per-line - --json -", 2, ["--per-line", "--json"]),
    ("lm score - -", 2, ["standard"]),
    ("lm score ids.ngram a.txt", 1, ["a.txt", "--tokenizer"]),
    ("lm score other.ngram a.txt", 1, ["a.txt", "--tokenizer"]),
    ("lm score bare.ngram a.npy --per-line -", 2, ["--per-line", "--per-token", "--end-of-text"]),
]


@pytest.mark.parametrize("call, status, named", REFUSED, ids=[call[:80] for call, _, _ in REFUSED])
def test_what_is_refused(folder, capsys, monkeypatch, call, status, named):
    """Nothing is written, but for the counts of a build."""
    monkeypatch.chdir(folder)
    before = {*folder.rglob("*")}
    cli.refusal(capsys, *shlex.split(call), status=status, names=named)
    assert all("lm.ngram.work" in path.parts for path in {*folder.rglob("*")} - before if path.is_file())
