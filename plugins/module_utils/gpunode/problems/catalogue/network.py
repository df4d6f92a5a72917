"""Ports, name resolution, certificates, connections between processes and nodes."""

from __future__ import annotations

from ..model import CERTAIN, HOST, LIKELY, NETWORK, Problem, Sign

PROBLEMS = (
    Problem(
        id="rendezvous-port-in-use",
        layer=NETWORK,
        title="The rendezvous port of the workers is taken",
        cause="A second job (or a leftover of the last one) uses the same port for PyTorch's rendezvous.",
        remedy="Give this one another port: dist-init-addr or nccl-port in sglang_server_flags (MASTER_PORT for torchrun); ss -ltnp | grep PORT names the holder.",
        signs=(
            Sign(r"server socket has failed to (?:listen|bind) on any local network address"),
            Sign(r"\bEADDRINUSE\b"),
            Sign(r"(?:TCPStore|c10d|init_process_group|rendezvous|MASTER_PORT|dist[-_]init)[^\n]{0,160}address already in use"),
        ),
        shows=(
            (
                "RuntimeError: The server socket has failed to listen on any local network address. port: 29500, useIpv6: 0, code: -98, name: EADDRINUSE, "
                "message: address already in use."
            ),
        ),
        unlike=("init_method=tcp://127.0.0.1:29500 rank=0",),
        sources=("https://github.com/om-ai-lab/VLM-R1/issues/289",),
        confidence=CERTAIN,
        explains=("collective",),
        refines=("port-in-use",),
    ),
    Problem(
        id="port-in-use",
        layer=NETWORK,
        title="The server's port is taken",
        cause="Another process holds the port: a second server, a leftover worker of this one, or something else.",
        remedy="ss -ltnp | grep PORT names it; stop it or choose another port (sglang_server_port).",
        signs=(
            Sign(r"\[Errno 98\]"),
            Sign(r"address already in use"),
            Sign(r"error while attempting to bind on address \('?(?P<address>[^']*)'?, (?P<port>\d+)"),
            Sign(r"\bport (?P<port>\d+) is (?:already )?(?:in use|used by|occupied|not available)"),
        ),
        shows=(
            "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 30000): address already in use",
            "OSError: [Errno 98] Address already in use",
        ),
        unlike=("Uvicorn running on http://0.0.0.0:30000 (Press CTRL+C to quit)",),
        sources=("https://github.com/vllm-project/vllm/issues/8204",),
        confidence=CERTAIN,
    ),
    Problem(
        id="rendezvous-failed",
        layer=NETWORK,
        title="The workers do not find each other",
        cause="The address of the first rank is not reachable: wrong address or interface, a firewall, or the first rank did not start.",
        remedy="Check dist-init-addr (host:port reachable from every node), GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME (sglang_server_environment), and the "
        "firewall between the containers.",
        signs=(
            Sign(r"client socket has (?:failed to connect|timed out)"),
            Sign(r"DistStoreError|Timed out after \d+ seconds waiting for clients"),
            Sign(
                r"Gloo connectFullMesh failed|\[(?:\S*/)?gloo/\S+\][^\n]{0,120}(?:timed out|Timed out|connection (?:refused|reset|closed))"
            ),
            Sign(r"torch\.distributed\.DistNetworkError"),
            Sign(r"NCCL WARN .{0,60}\b(?:connect to \S+ (?:failed|returned)|Connection (?:refused|timed out)|No route to host)"),
        ),
        shows=(
            "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to connect to (192.0.2.10, 20000).",
            "RuntimeError: Gloo connectFullMesh failed with [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:144] no error",
        ),
        unlike=("[Gloo] Rank 0 is connected to 7 peer ranks. Expected number of connected peer ranks is : 7",),
        sources=("https://docs.sglang.io/references/multi_node_deployment/multi_node.html",),
        confidence=LIKELY,
        tags=("collective",),
        refines=("nccl-system-error",),
    ),
    Problem(
        id="nccl-no-interface",
        layer=NETWORK,
        title="NCCL finds no network interface",
        cause="The interface named by NCCL_SOCKET_IFNAME does not exist in the container, or it has only loopback.",
        remedy="Set NCCL_SOCKET_IFNAME to the container's interface (eth0), or on one node leave it out (sglang_server_environment).",
        signs=(
            Sign(r"Bootstrap ?: no (?:socket )?interface found"),
            Sign(r"NCCL WARN (?:NET/Socket ?: )?[Nn]o (?:usable |socket )?interface"),
            Sign(r"Unable to find address for: (?P<interface>\S+)"),
        ),
        shows=("NCCL WARN Bootstrap : no socket interface found",),
        unlike=("NCCL INFO NET/Socket : Using [0]eth0:192.0.2.9<0>",),
        sources=("https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",),
        confidence=CERTAIN,
        tags=("collective",),
        explains=("nccl-system-error",),
        refines=("nccl-system-error",),
    ),
    Problem(
        id="nccl-infiniband",
        layer=NETWORK,
        title="NCCL's InfiniBand transport fails",
        cause="A queue pair broke: link down, wrong GID index, PFC or routing on RoCE, or RDMA not usable in the container.",
        remedy="On one node switch it off: NCCL_IB_DISABLE=1 (sglang_server_environment). Between nodes: ibstat, NCCL_IB_GID_INDEX, NCCL_IB_HCA.",
        signs=(
            Sign(r"NET/IB ?: .{0,80}Got completion (?:from peer \S+ )?with (?:error|status=)"),
            Sign(r"NET/IB ?: .{0,40}\b(?:Got async event|Unable to open device|fatal error|fatal async)"),
            Sign(r"ibv_(?:modify_qp|poll_cq|post_send)\S* failed"),
            Sign(r"IBV_WC_\w+_ERR\b"),
        ),
        shows=("NCCL WARN NET/IB : Got completion from peer 192.0.2.4<43210> with status=12 opcode=0 len=0 vendor err 129 (Recv)",),
        unlike=("NCCL INFO NET/IB : No device found.",),
        sources=("https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",),
        confidence=LIKELY,
        tags=("collective",),
        explains=("nccl-system-error",),
        refines=("nccl-system-error",),
    ),
    Problem(
        id="name-resolution",
        layer=NETWORK,
        title="A name cannot be resolved",
        cause="The host or container has no working name server.",
        remedy="cat /etc/resolv.conf; set gpu_container_nameserver; for a closed network HF_HUB_OFFLINE=1 and a filled cache.",
        signs=(
            Sign(r"Temporary failure (?:in name resolution|resolving)"),
            Sign(r"Name or service not known"),
            Sign(r"Could not resolve (?:host|'\S+')|failed to lookup address information"),
            Sign(r"NameResolutionError|getaddrinfo failed"),
        ),
        shows=(
            "Err:1 http://archive.example.org/debian trixie InRelease\n  Temporary failure resolving 'archive.example.org'",
            "socket.gaierror: [Errno -2] Name or service not known",
        ),
        unlike=("nameserver 192.0.2.53",),
        sources=("https://pve.proxmox.com/pve-docs/chapter-pct.html",),
        confidence=CERTAIN,
        explains=("rendezvous-failed", "hub-unreachable"),
    ),
    Problem(
        id="certificate-untrusted",
        layer=NETWORK,
        title="A server's certificate is not trusted",
        cause="A proxy or mirror of this network uses its own authority, the clock is wrong, or ca-certificates are missing.",
        remedy="Install the authority in the container (update-ca-certificates) and point REQUESTS_CA_BUNDLE and SSL_CERT_FILE to the bundle; check date.",
        signs=(
            Sign(r"CERTIFICATE_VERIFY_FAILED"),
            Sign(r"certificate verif\w+ failed|SSL certificate problem"),
            Sign(r"self[- ]signed certificate in certificate chain|unable to get local issuer certificate"),
            Sign(r"certificate (?:has expired|is not yet valid)|invalid peer certificate"),
        ),
        shows=(
            "ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: unable to get local issuer certificate (_ssl.c:1010)",
        ),
        unlike=("SSL certificate verify ok.",),
        sources=("https://docs.python.org/3/library/ssl.html",),
        confidence=CERTAIN,
        explains=("hub-unreachable",),
    ),
    Problem(
        id="hub-unreachable",
        layer=NETWORK,
        title="The model hub cannot be reached",
        cause="No route, a proxy, or a firewall between here and the hub.",
        remedy="Set HTTPS_PROXY for the download, or fetch the checkpoint elsewhere into the shared cache and serve with HF_HUB_OFFLINE=1.",
        signs=(
            Sign(
                r"(?:Max retries exceeded|Connection(?:Error| refused| timed out)|ConnectTimeout|ReadTimeout|Network is unreachable)\b[^\n]{0,200}\b(?:huggingface\.co|hf\.co)\b"
            ),
            Sign(
                r"\b(?:huggingface\.co|hf\.co)\b[^\n]{0,200}\b(?:Max retries exceeded|Connection (?:refused|timed out)|Read timed out|ConnectTimeout|Network is unreachable)"
            ),
            Sign(r"We couldn'?t connect to 'https://(?:huggingface|hf)"),
            Sign(r"CAS service error : Reqwest(?:Middleware)? Error"),
        ),
        shows=(
            "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded with url: /api/models/org/model",
            "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the cached files.",
            "RuntimeError: Data processing error: CAS service error : Reqwest Error: error sending request",
        ),
        unlike=("Fetching 78 files: 100%",),
        sources=("https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables",),
        confidence=LIKELY,
        explains=("hub-offline", "tokenizer-missing"),
        refines=("hub-offline",),
    ),
    Problem(
        id="pve-node-ssh-key",
        layer=HOST,
        title="A Proxmox node does not trust its own or another node's ssh key",
        cause="pvesh forwards the call to the node by ssh, whose host key is missing or has changed (after a rename, a reinstallation or a restore).",
        remedy="pvecm updatecerts --force on each node; hostname must be the node's name exactly. Then try again.",
        signs=(Sign(r"proxy handler failed: Host key verification failed"),),
        shows=("proxy handler failed: Host key verification failed.",),
        unlike=("Host key verification failed.",),
        sources=("https://github.com/MrBloodrune/claude-skills",),
        confidence=CERTAIN,
        refines=("ssh-host-key",),
    ),
    Problem(
        id="ssh-host-key",
        layer=NETWORK,
        title="ssh refuses the host's key",
        cause="The key of the host is unknown or has changed (a reinstalled node, or somebody in between).",
        remedy="Compare the key at the host's console (ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub), then ssh-keygen -R HOST and connect once by hand.",
        signs=(
            Sign(r"REMOTE HOST IDENTIFICATION HAS CHANGED"),
            Sign(r"Host key verification failed"),
            Sign(r"Server '\S+' not found in known_hosts|Host key for server '\S+' does not match"),
        ),
        shows=("@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @", "Host key verification failed."),
        unlike=("Host key fingerprint is SHA256:abc",),
        sources=("https://man.openbsd.org/ssh",),
        confidence=CERTAIN,
    ),
)
