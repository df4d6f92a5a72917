"""The model: download, cache, completeness, configuration and checkpoint."""

from __future__ import annotations

from ..model import CERTAIN, LIKELY, MODEL, SERVER, WARNING, Problem, Range, Sign

PROBLEMS = (
    Problem(
        id="disk-full",
        layer=MODEL,
        title="The disk of the model cache is full",
        cause="There is no room where the Hugging Face cache (or another cache of the server) lies.",
        remedy="df -h of the path; free space (hf cache prune; old releases in /opt/sglang/releases), or point model_store_cache (HF_HOME) to a larger disk.",
        consequence="The download stops and leaves *.incomplete files.",
        signs=(
            Sign(r"Not enough free disk space to download the file"),
            Sign(r"No space left on device"),
            Sign(r"\[Errno 122\] Disk quota exceeded|Disk quota exceeded \(os error 122\)"),
            Sign(r"\bENOSPC\b"),
        ),
        shows=(
            (
                "UserWarning: Not enough free disk space to download the file. The expected file size is: 31264.22 MB. The target location "
                "/root/.cache/huggingface/hub/models--x/blobs only has 25030.56 MB free disk space."
            ),
            "RuntimeError: Task error: File reconstruction error: IO Error: No space left on device (os error 28)",
        ),
        unlike=("/dev/sda1  1.8T  900G  900G  50% /srv/models",),
        sources=("https://huggingface.co/docs/hub/local-cache",),
        confidence=LIKELY,
        explains=("shard-missing", "shard-truncated"),
    ),
    Problem(
        id="hub-offline",
        layer=MODEL,
        title="The server asks the hub although it is offline",
        cause="Offline mode is on, and the repository id is not resolved from the cache (not in this cache, another revision, another HF_HOME).",
        remedy="Give the local snapshot folder as the model path (gpunode model-info REPO finds it), or fill the cache first with the network on.",
        signs=(
            Sign(r"offline mode is enabled"),
            Sign(r"OfflineModeIsEnabled"),
            Sign(r"outgoing traffic has been disabled"),
            Sign(r"LocalEntryNotFoundError|Cannot find the requested files in the (?:disk|local) cache"),
            Sign(r"couldn'?t find (?:them|it) in the cached files"),
        ),
        shows=(
            (
                "huggingface_hub.utils._http.OfflineModeIsEnabled: Cannot reach https://huggingface.co/api/models/org/model: offline mode is enabled. "
                "To disable it, please unset the `HF_HUB_OFFLINE` environment variable."
            ),
        ),
        unlike=("HF_HUB_OFFLINE=1",),
        sources=(
            "https://github.com/vllm-project/vllm/issues/3719",
            "https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables",
        ),
        confidence=CERTAIN,
        explains=("tokenizer-missing",),
    ),
    Problem(
        id="snapshot-not-cached",
        layer=MODEL,
        title="The revision is not in the cache",
        cause="The snapshot of this revision is not in the cache that the server looks into, and the network is off.",
        remedy="Download the revision with the network on (hf download REPO --revision REV), or point HF_HOME or the model path to where it lies "
        "(gpunode model-info REPO searches every layout).",
        signs=(Sign(r"Cannot find an appropriate cached snapshot folder for the specified revision"),),
        shows=(
            (
                "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find an appropriate cached snapshot folder for the specified revision on the local "
                "disk and outgoing traffic has been disabled."
            ),
        ),
        unlike=("Found local HF snapshot for openai/gpt-oss-120b at /srv/hf/hub/models--openai--gpt-oss-120b/snapshots/0000",),
        sources=("https://github.com/flagos-ai/vllm-plugin-FL/issues/185",),
        confidence=CERTAIN,
        explains=("hub-offline", "tokenizer-missing"),
        refines=("hub-offline",),
    ),
    Problem(
        id="hub-forbidden",
        layer=MODEL,
        title="The hub refuses the repository",
        cause="The repository is gated or private and no token with access is given, or its name is wrong.",
        remedy="Accept the licence on the model's page, hf auth login (or HF_TOKEN), and check the name; then hf auth whoami.",
        signs=(
            Sign(r"Access to model \S+ is restricted|GatedRepoError|Cannot access gated repo"),
            Sign(r"RepositoryNotFoundError|Repository Not Found for url"),
            Sign(r"\b(?:401|403) Client Error.{0,120}huggingface\.co"),
            Sign(r"Invalid (?:user|username or|user) (?:token|password)", near=(r"hugging|hf_",), within=10),
            Sign(r"is not a local folder and is not a valid model identifier"),
        ),
        shows=(
            "huggingface_hub.errors.GatedRepoError: 403 Client Error. Cannot access gated repo for url https://huggingface.co/org/model/resolve/main/config.json.",
            "OSError: zai-org/GLM-5-NVFP is not a local folder and is not a valid model identifier listed on 'https://huggingface.co/models'",
        ),
        unlike=("GET https://huggingface.co/api/models/org/model 200 OK",),
        sources=("https://huggingface.co/docs/hub/models-gated",),
        confidence=CERTAIN,
        explains=("tokenizer-missing",),
    ),
    Problem(
        id="hub-rate-limit",
        layer=MODEL,
        title="The hub limits the rate",
        cause="Too many requests from this address without a token.",
        remedy="Set a token (HF_TOKEN), fetch with fewer workers (hf download --max-workers 4), and serve with HF_HUB_OFFLINE=1.",
        signs=(
            Sign(r"429 Client Error.{0,120}"),
            Sign(r"(?:status|error) code:? 429\b|\bToo Many Requests\b", near=(r"hugging|hf\.co|hf_",), within=10),
        ),
        shows=(
            "requests.exceptions.HTTPError: 429 Client Error: Too Many Requests for url: https://huggingface.co/org/model/resolve/main/x",
        ),
        unlike=("HTTP/1.1 200 OK",),
        sources=("https://huggingface.co/docs/hub/rate-limits",),
        confidence=CERTAIN,
    ),
    Problem(
        id="shard-missing",
        layer=MODEL,
        title="A shard of the checkpoint is missing",
        cause="The download is incomplete: the index names a file that is not on the disk (or a link of the snapshot leads nowhere).",
        remedy="hf download REPO again (it fetches only what is missing); gpunode model-info REPO lists the missing files; a moved cache must keep its links.",
        signs=(
            Sign(r"(?:No such file or directory|FileNotFoundError|does not exist|not found)[^\n]{0,240}\.safetensors"),
            Sign(r"\.safetensors\b[^\n]{0,80}\b(?:No such file or directory|does not exist|is missing|not found)"),
            Sign(r"(?:missing|absent) (?:shards?|weight files?).{0,120}"),
            Sign(r"Cannot find any model weights with|No (?:safetensors|model) (?:weights|files) found"),
            Sign(r"no file named (?:model\.safetensors|pytorch_model\.bin)"),
        ),
        shows=(
            "FileNotFoundError: No such file or directory: /srv/hf/hub/models--x/snapshots/0000/model-00003-of-00014.safetensors",
            "RuntimeError: Cannot find any model weights with `/models/glm-5-nvfp4`",
        ),
        unlike=("Loading safetensors checkpoint shards: 100% Completed | 78/78 [00:36<00:00,  2.1it/s]",),
        sources=("https://github.com/sgl-project/sglang/pull/14253",),
        confidence=CERTAIN,
    ),
    Problem(
        id="shard-truncated",
        layer=MODEL,
        title="A weight file is cut off or no weight file",
        cause="The download of a shard was interrupted (the file is shorter than its header says), or the file is a git LFS pointer.",
        remedy="Delete the file, the blob its link leads to included, and hf download REPO again; with a git clone: git lfs pull.",
        signs=(
            Sign(r"MetadataIncompleteBuffer|Metadata incomplete buffer|incomplete metadata, file not fully covered"),
            Sign(r"Error while deserializing header"),
            Sign(r"HeaderTooLarge|HeaderTooSmall|InvalidHeader(?:Deserialization|Length|Start)?"),
            Sign(r"Consistency check failed: file should be of size \d+"),
            Sign(r"version https://git-lfs\.github\.com/spec"),
            Sign(r"SafetensorError: .{0,80}"),
        ),
        shows=(
            "safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer",
            "OSError: Consistency check failed: file should be of size 4987202208 but has size 2118844416 (model-00007-of-00078.safetensors).",
        ),
        unlike=("Using safetensors 0.6.2",),
        sources=("https://github.com/lyogavin/airllm/issues/137",),
        confidence=CERTAIN,
    ),
    Problem(
        id="model-class-newer",
        layer=MODEL,
        title="The model's code and its configuration are of different releases",
        cause="The model is newer than the release that loads it (or its model files were copied into an older one): a configuration class lacks an attribute.",
        remedy="Use a release of sglang and transformers that supports the model (sglang_venv_version) instead of copying model files.",
        signs=(
            Sign(r"AttributeError: '(?P<config>\w*Config)' object has no attribute '(?P<attribute>\w+)'"),
            Sign(r"AttributeError: '(?P<model>\w+For(?:CausalLM|ConditionalGeneration))' object has no attribute '(?P<attribute>\w+)'"),
        ),
        shows=("AttributeError: 'KimiK25VisionConfig' object has no attribute 'hidden_size'. Did you mean: 'mm_hidden_size'?",),
        unlike=("AttributeError: 'NoneType' object has no attribute 'cpu'",),
        sources=("https://github.com/magik6k/glm-kimi-sm120-rtx6000bw",),
        confidence=LIKELY,
    ),
    Problem(
        id="model-architecture-unsupported",
        layer=MODEL,
        title="The server does not know this model architecture",
        cause="The installed release of the server has no implementation of the architecture that config.json names.",
        remedy="Use a release that supports it (sglang_venv_version), or --model-impl transformers where that works.",
        signs=(
            Sign(r"Model architectures? \[?'?(?P<architecture>\w+)'?\]? (?:are|is) not supported"),
            Sign(r"has no (?:SGLang|vLLM) implementation and the Transformers implementation is not compatible"),
            Sign(r"Unsupported architectures: (?P<architecture>\w+)"),
        ),
        shows=(
            "ValueError: Model architectures ['GlmMoeDsaForCausalLM'] are not supported for now. Supported architectures: dict_keys([...])",
        ),
        unlike=("Resolved architecture: GlmMoeDsaForCausalLM",),
        sources=("https://github.com/sgl-project/sglang",),
        confidence=CERTAIN,
    ),
    Problem(
        id="weight-shape-mismatch",
        layer=MODEL,
        title="A weight does not fit its parameter",
        cause="The checkpoint keeps layers unquantised that its quantisation configuration does not list as ignored (sizes differ by two), or it was "
        "made for another model class.",
        remedy="Add the named layers to quantization_config.ignore in config.json and in hf_quant_config.json; take the recommended server release.",
        signs=(
            Sign(r"Tried to load weights of size .{0,60} to a parameter of size"),
            Sign(r"Attempted to load weight \(.{0,60}\) into parameter"),
            Sign(r"size mismatch for \S+: copying a param with shape"),
            Sign(r"Unsupported model when in features size is not multiple of 16"),
            Sign(r"(?:param_data|param|loaded_weight|param\.data)\.shape == (?:loaded_weight|param_data)\.shape"),
        ),
        shows=(
            "AssertionError: Tried to load weights of size torch.Size([512, 4096])\nto a parameter of size torch.Size([512, 2048])",
            "AssertionError: Attempted to load weight (torch.Size([6144, 16])) into parameter (torch.Size([6144, 32]))",
        ),
        unlike=("Load weight end. type=GlmMoeDsaForCausalLM, dtype=torch.bfloat16, avail mem=36.1 GB, mem usage=57.06 GB.",),
        sources=("https://github.com/voipmonitor/rtx6kpro/blob/main/troubleshooting/common-issues.md",),
        confidence=LIKELY,
    ),
    Problem(
        id="shared-expert-fusion",
        layer=SERVER,
        title="Shared experts are fused although the checkpoint keeps them plain",
        cause="Shared-expert fusion is on although the checkpoint keeps the shared experts out of FP4: packed and plain sizes differ.",
        remedy="Add --disable-shared-experts-fusion to sglang_server_flags, or use sglang 0.5.18 or newer, which switches it off by itself.",
        signs=(
            Sign(
                r"size of tensor a \((?P<half>\d+)\) must match the size of tensor b \(\d+\)",
                near=(r"load_weights|experts?|weight_loader|3072",),
            ),
            Sign(r"size of tensor a \(3072\) must match the size of tensor b \(6144\)"),
            Sign(r"(?:3072|6144)[^\n]{0,60}(?:3072|6144)[^\n]{0,80}shared_experts?"),
        ),
        shows=(
            (
                "[TP2] Scheduler hit an exception: Traceback (most recent call last):\n"
                "RuntimeError: The size of tensor a (3072) must match the size of tensor b (6144) at non-singleton dimension 1"
            ),
        ),
        unlike=("RuntimeError: The size of tensor a (7) must match the size of tensor b (8) at non-singleton dimension 0",),
        sources=("https://github.com/sgl-project/sglang/issues/29562", "https://github.com/sgl-project/sglang/pull/29580"),
        confidence=LIKELY,
        affects=(Range("sglang", "", "0.5.18"),),
        refines=("weight-shape-mismatch",),
    ),
    Problem(
        id="stale-num-experts",
        layer=MODEL,
        title="config.json allocates experts that the checkpoint does not have",
        cause="config.json has a stale num_experts key that overrides n_routed_experts: more experts are allocated than the checkpoint holds.",
        remedy="Delete num_experts from config.json of the snapshot (gpunode model-info shows both numbers).",
        consequence="Out of memory while the weights are created.",
        signs=(
            Sign(r"Local/global number of experts: \d+/(?P<experts>256|384|512)\b", near=(r"CUDA out of memory",), within=400),
            Sign(
                r"Local/global number of experts: \d+/(?P<experts>\d+)\b",
                near=(r"CUDA out of memory[^\n]*", r"create_weights|modelopt\.py"),
                within=400,
            ),
            Sign(
                r"Attempted to load weight \(torch\.Size\(\[(?P<held>\d{2,3})\]\)\) into parameter \(torch\.Size\(\[(?P<experts>256|384|512)\]\)\)"
            ),
        ),
        shows=(
            (
                "[EP Rank 0/4] Expert parallelism is enabled. Local/global number of experts: 64/256\n"
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 93.64 GiB"
            ),
            "AssertionError: Attempted to load weight (torch.Size([168])) into parameter (torch.Size([256]))",
        ),
        unlike=("[EP Rank 0/4] Expert parallelism is enabled. Local/global number of experts: 42/168",),
        sources=("https://github.com/hermia-ai/glm-5.2-sm120-stock-vllm/blob/main/docs/BUGS.md",),
        confidence=LIKELY,
        refines=("gpu-memory", "weight-shape-mismatch"),
    ),
    Problem(
        id="weight-name-unknown",
        layer=MODEL,
        title="The checkpoint has a weight that the model class does not know",
        cause="Checkpoint and model implementation do not belong together: a draft (MTP) layer, a quantised form or a newer architecture that this release "
        "does not load.",
        remedy="Take the release that the checkpoint's page names (sglang_venv_version), or a checkpoint made for this one.",
        signs=(
            Sign(r"KeyError: '(?P<weight>(?:model|language_model|transformer|visual|mtp)\.[\w.]+)'"),
            Sign(r"Following weights were not initialized from checkpoint"),
            Sign(r"There is no module or parameter named '(?P<weight>[\w.]+)'"),
        ),
        shows=(
            "KeyError: 'model.layers.78.eh_proj.weight'",
            "ValueError: There is no module or parameter named 'mtp.fc' in Qwen3NextForCausalLM",
        ),
        unlike=("KeyError: 'content'",),
        sources=("https://github.com/sgl-project/sglang",),
        confidence=LIKELY,
    ),
    Problem(
        id="mtp-weights-missing",
        layer=MODEL,
        title="The checkpoint has no MTP layer",
        cause="Speculative decoding with the model's own draft layer is asked for, and the checkpoint does not carry that layer, "
        "whatever num_nextn_predict_layers says.",
        remedy="Use a checkpoint with MTP weights (for GLM-5: festr2/GLM-5-NVFP4-MTP), or take the --speculative-* flags out of sglang_server_flags.",
        signs=(
            Sign(r"MTP speculative decoding layer \d+ weights missing from checkpoint"),
            Sign(r"(?:nextn|mtp|eagle|draft)\b.{0,60}\bweights? (?:are |is )?(?:missing|not found|not initialized)\b"),
            Sign(r"num_nextn_predict_layers .{0,60}\b(?:not|missing)"),
        ),
        shows=("ValueError: MTP speculative decoding layer 78 weights missing from checkpoint.",),
        unlike=("Enabling num_speculative_tokens > 1 will run multiple times of forward on same MTP layer",),
        sources=("https://github.com/voipmonitor/rtx6kpro/blob/main/troubleshooting/common-issues.md",),
        confidence=CERTAIN,
    ),
    Problem(
        id="trust-remote-code",
        layer=MODEL,
        title="The model brings its own code",
        cause="The repository contains code that transformers must be told to execute.",
        remedy="Read that code, then add --trust-remote-code to sglang_server_flags.",
        signs=(
            Sign(r"requires you to execute the (?:configuration|modeling|tokenizer)? ?file in that repo"),
            Sign(r"contains custom code which must be executed to correctly load the model"),
            Sign(r"Please pass the argument `?trust_remote_code=True`? to allow custom code"),
        ),
        shows=("ValueError: The repository /models/kimi contains custom code which must be executed to correctly load the model.",),
        unlike=("trust_remote_code=True",),
        sources=("https://huggingface.co/docs/transformers/custom_models",),
        confidence=CERTAIN,
    ),
    Problem(
        id="quantization-mismatch",
        layer=MODEL,
        title="The quantisation asked for is not the checkpoint's",
        cause="--quantization names another method than the checkpoint's configuration, or one that this GPU or release does not support.",
        remedy="Take the method from config.json or hf_quant_config.json (NVFP4 by ModelOpt: --quantization modelopt_fp4), or leave the flag out.",
        signs=(
            Sign(r"Quantization method specified in the model config \((?P<config>\S+)\) does not match the quantization method specified"),
            Sign(r"Unknown quantization method: (?P<method>\S+)|Invalid quantization method: (?P<other>\S+)"),
            Sign(r"The quantization method \S+ is not supported for the current GPU"),
            Sign(r"Unsupported FusedMoe scheme|No compressed-tensors compatible scheme was found"),
            Sign(r"FP[48] is not available on this device"),
            Sign(r"quantization is currently not supported for|is not supported for quantization method"),
        ),
        shows=(
            (
                "ValueError: Quantization method specified in the model config (modelopt) does not match the quantization method specified in the "
                "`quantization` argument (fp8)."
            ),
        ),
        unlike=(
            "Detected ModelOpt NVFP4 checkpoint (quant_algo=NVFP4). Please note that the format is experimental and could change in future.",
        ),
        sources=("https://docs.sglang.io/advanced_features/quantization.html",),
        confidence=CERTAIN,
    ),
    Problem(
        id="tensor-parallel-indivisible",
        layer=MODEL,
        title="The model does not divide by this tensor parallel size",
        cause="Heads, experts or quantisation blocks do not divide by the number of ranks.",
        remedy="Choose another tensor parallel size in sglang_server_flags (--tp-size), add pipeline or expert parallelism; gpunode model-info PATH --tp N "
        "tells which fit.",
        signs=(
            Sign(r"output_partition_size = \d+ is not divisible by weight quantization block_[nk]"),
            Sign(r"input_size_per_partition = \d+ is not divisible by weight quantization block_k"),
            Sign(
                r"(?:num_attention_heads|num_heads|num_kv_heads|attention heads).{0,60}\b(?:must be )?(?:not )?divisible by.{0,40}\b(?:tp_size|tensor parallel|world_size)?"
            ),
            Sign(r"assert self\.total_num_(?:kv_)?heads % \w*tp_size == 0"),
            Sign(r"AssertionError: \d+ is not divisible by \d+"),
            Sign(r"\d+ is not divisible by \d+", near=(r"parallel_state|divide\(|ensure_divisibility|tp_size",), within=30),
        ),
        shows=(
            "ValueError: Weight output_partition_size = 192 is not divisible by weight quantization block_n = 128.",
            "AssertionError: 64 is not divisible by 6\n  File parallel_state.py line 9, in ensure_divisibility",
        ),
        unlike=("tp_size=8",),
        sources=("https://github.com/sgl-project/sglang/issues/3491",),
        confidence=CERTAIN,
    ),
    Problem(
        id="tokenizer-missing",
        layer=MODEL,
        title="The tokenizer cannot be loaded",
        cause="The snapshot lacks tokenizer files, or the installed transformers does not know this tokenizer class.",
        remedy="hf download REPO again; pass --tokenizer-path where the checkpoint has none; update transformers (sglang_venv).",
        signs=(
            Sign(r"Can'?t load tokenizer for '(?P<path>[^']+)'"),
            Sign(r"Couldn'?t instantiate the backend tokenizer"),
            Sign(r"Tokenizer class (?P<tokenizer>\w+) does not exist or is not currently imported"),
            Sign(r"data did not match any variant of untagged enum"),
        ),
        shows=(
            "OSError: Can't load tokenizer for '/models/glm-5-nvfp4'. If you were trying to load it from 'https://huggingface.co/models', make sure",
        ),
        unlike=("tokenizer_path='/models/glm-5-nvfp4'",),
        sources=("https://huggingface.co/docs/transformers/main_classes/tokenizer",),
        confidence=LIKELY,
    ),
    Problem(
        id="model-path-wrong",
        layer=MODEL,
        title="The model path holds no model",
        cause="The path has no config.json: another layout of the cache, a folder above the snapshot, or a mount that is missing in the container.",
        remedy="gpunode model-info PATH finds the checkpoint in any cache layout; check gpu_container_mounts and model_store_cache.",
        signs=(
            Sign(r"does not appear to have a file named config\.json"),
            Sign(r"(?:No such file or directory|FileNotFoundError)[^\n]{0,160}config\.json"),
            Sign(r"Unrecognized model in \S+\. Should have a `model_type` key"),
            Sign(r"HFValidationError: Repo id must be in the form"),
            Sign(r"Repo id must (?:be in the form|use alphanumeric)"),
        ),
        shows=(
            (
                "OSError: /models/glm-5 does not appear to have a file named config.json. Checkout 'https://huggingface.co//models/glm-5/tree/main' for "
                "available files."
            ),
            "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/models/glm-5'.",
        ),
        unlike=("loading configuration file /models/glm-5/config.json",),
        sources=("https://huggingface.co/docs/hub/local-cache",),
        confidence=CERTAIN,
        explains=("tokenizer-missing",),
    ),
    Problem(
        id="file-permission",
        layer=MODEL,
        title="The server's user may not use a file",
        cause="A model, cache or log folder belongs to somebody else: filled by root, or mounted into an unprivileged container, where the host's root "
        "is nobody (its user 0 is 100000 on the host).",
        remedy="namei -l of the path in the container shows where it ends; let the server's user own it (chown -R sglang: of the folder, "
        "model_store_owner), on the host with 100000 added to the container's number.",
        signs=(
            Sign(r"PermissionError: \[Errno 13\] Permission denied: '(?P<path>(?!/dev/)[^'\n]+)'"),
            Sign(r"Permission denied \(os error 13\)"),
        ),
        shows=("PermissionError: [Errno 13] Permission denied: '/models/hub/models--x--y/.locks/a.lock'",),
        unlike=("PermissionError: [Errno 13] Permission denied: '/dev/nvidia0'",),
        sources=(
            "https://huggingface.co/docs/huggingface_hub/guides/manage-cache",
            "https://pve.proxmox.com/wiki/Unprivileged_LXC_containers",
        ),
        confidence=LIKELY,
        explains=("server-ended",),
    ),
    Problem(
        id="chat-template-refused",
        layer=MODEL,
        title="The model's chat template refuses a conversation",
        cause="The template demands an order of roles or fields that the client's messages do not have; the request fails, the server goes on.",
        remedy="Mend the client's messages (roles that alternate, one system message at the beginning), or give a template with chat-template in "
        "sglang_server_flags.",
        severity=WARNING,
        signs=(
            Sign(r"jinja2\.exceptions\.(?:TemplateError|UndefinedError|TemplateSyntaxError)\b"),
            Sign(r"[Cc]onversation roles must alternate"),
        ),
        shows=("jinja2.exceptions.TemplateError: After the optional system message, conversation roles must alternate user/assistant",),
        unlike=("[2026-11-30 10:00:00] Using default HuggingFace chat template with detected content format: openai",),
        sources=("https://huggingface.co/docs/transformers/chat_templating_writing",),
        confidence=LIKELY,
    ),
)
