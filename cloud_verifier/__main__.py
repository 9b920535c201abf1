"""`python -m cloud_verifier --bind tcp://127.0.0.1:5555 --model PATH`: serve until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import sys

from cloud_verifier.config import ServerConfig
from cloud_verifier.errors import VerifierError
from specdec.errors import OptionsError, SpecdecError
from specdec.row_ms import read_ms


def pacing(text: str) -> float:
    """A time of a forward, for argparse."""
    try:
        return read_ms(text)
    except OptionsError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def build_parser() -> argparse.ArgumentParser:
    """The command line; its defaults are ServerConfig's."""
    parser = argparse.ArgumentParser(prog="cloud_verifier", description="Serve verdicts of a target model.")
    parser.add_argument("--model", required=True, help="Hugging Face folder or hub id")
    parser.add_argument("--bind", default=ServerConfig.bind, help="tcp://HOST:PORT, port 0 takes a free one")
    parser.add_argument("--engine", default=ServerConfig.engine, help="own, or vllm where it is installed")
    parser.add_argument(
        "--tensor-parallel",
        type=int,
        default=ServerConfig.tensor_parallel,
        metavar="K",
        help="GPUs that share the target, with --engine vllm",
    )
    parser.add_argument("--device", default=ServerConfig.device, help="auto, cpu, cuda, cuda:1")
    parser.add_argument("--dtype", default=ServerConfig.dtype, help="auto, float32, float16, bfloat16")
    parser.add_argument("--quantize", default=ServerConfig.quantize, help="none, 8bit, 4bit")
    parser.add_argument(
        "--pixels",
        type=int,
        default=ServerConfig.pixels,
        metavar="N",
        help="of a picture, larger ones are scaled down; 0 = about a megapixel",
    )
    parser.add_argument(
        "--draft-model", default=ServerConfig.draft_model, help="for methods that draft in the cloud; ngram: no model"
    )
    parser.add_argument(
        "--gguf",
        default=ServerConfig.gguf,
        metavar="NAME=VALUE,...",
        help="of a GGUF --draft-model: threads, gpu_layers, context, kv",
    )
    parser.add_argument(
        "--draft-disturbed",
        default=ServerConfig.draft_disturbed,
        metavar="STRENGTH:SEED",
        help="of --draft-model: its logits are disturbed, to stand in for a weaker one (specnav bench --acceptance)",
    )
    parser.add_argument("--threads", type=int, default=ServerConfig.threads, help="CPU threads, 0 = choose")
    parser.add_argument("--max-sessions", type=int, default=ServerConfig.max_sessions)
    parser.add_argument(
        "--session-timeout",
        "--session-timeout-s",
        dest="session_timeout_s",
        type=float,
        default=ServerConfig.session_timeout_s,
        metavar="S",
    )
    parser.add_argument("--max-message-mb", type=float, default=ServerConfig.max_message_mb, metavar="MB")
    parser.add_argument(
        "--verify-ms",
        type=pacing,
        default=ServerConfig.verify_ms,
        metavar="MS[:ROWS,...]",
        help="minimum time of a forward; by its rows: 72:1,90:4,160:8",
    )
    parser.add_argument(
        "--draft-ms",
        type=pacing,
        default=ServerConfig.draft_ms,
        metavar="MS[:ROWS,...]",
        help="minimum time of a forward of --draft-model",
    )
    parser.add_argument(
        "--exits",
        default=ServerConfig.exits,
        metavar="FOLDER",
        help="early exits for hints (default: NAME-exits beside a model NAME-target; none: no hints)",
    )
    parser.add_argument(
        "--exit-layers", default=ServerConfig.exit_layers, help="auto, all, every:K or layers like 1,3,5"
    )
    bounds = parser.add_argument_group("bounds on one client")
    bounds.add_argument("--max-client-sessions", type=int, default=ServerConfig.max_client_sessions)
    bounds.add_argument("--max-queued-mb", type=float, default=ServerConfig.max_queued_mb, metavar="MB")
    bounds.add_argument(
        "--max-total-queued-mb",
        type=float,
        default=ServerConfig.max_total_queued_mb,
        metavar="MB",
        help="of all clients together",
    )
    bounds.add_argument("--max-queued-forwards", type=int, default=ServerConfig.max_queued_forwards)
    parser.add_argument(
        "--verdict-log", default=ServerConfig.verdict_log, metavar="FOLDER", help="keep what the target says, there"
    )
    parser.add_argument("--verdict-log-contents", default=ServerConfig.verdict_log_contents)
    parser.add_argument("--verdict-log-mb", type=float, default=ServerConfig.verdict_log_mb)
    bounds.add_argument("--max-draft-nodes", type=int, default=ServerConfig.max_draft_nodes)
    bounds.add_argument("--max-messages-per-s", type=float, default=ServerConfig.max_messages_per_s)
    bounds.add_argument("--max-images", type=int, default=ServerConfig.max_images)
    bounds.add_argument(
        "--max-image-megapixels",
        type=float,
        default=ServerConfig.max_image_megapixels,
        help="of all images of a prompt together",
    )
    bounds.add_argument("--max-output-mb", type=float, default=ServerConfig.max_output_mb, metavar="MB")
    bounds.add_argument(
        "--max-kept-pictures-mb",
        type=float,
        default=ServerConfig.max_kept_pictures_mb,
        metavar="MB",
        help="pictures that it may name instead of sending them again, 0 = none",
    )
    bounds.add_argument(
        "--max-total-kept-pictures-mb",
        type=float,
        default=ServerConfig.max_total_kept_pictures_mb,
        metavar="MB",
        help="of all clients together",
    )
    parser.add_argument(
        "--metrics",
        default=ServerConfig.metrics,
        metavar="HOST:PORT",
        help="serve /metrics, /healthz and /readyz there",
    )
    parser.add_argument(
        "--drain-s",
        type=float,
        default=ServerConfig.drain_s,
        metavar="S",
        help="after SIGTERM, answers in flight may take so long to end",
    )
    sharing = parser.add_argument_group("sessions that share forwards and memory")
    sharing.add_argument(
        "--kv-gb",
        type=float,
        default=ServerConfig.kv_gb,
        metavar="GB",
        help="what the caches of all sessions may take, 0 = half of what is free",
    )
    sharing.add_argument(
        "--share",
        default=ServerConfig.share,
        help="who shares the caches of equal prompts and pictures: key (of one key), all, none",
    )
    sharing.add_argument(
        "--shared-mb",
        type=float,
        default=ServerConfig.shared_mb,
        metavar="MB",
        help="what is kept of them for sessions to come, 0 = choose",
    )
    sharing.add_argument("--forward-rows", type=int, default=ServerConfig.forward_rows, help="of a forward")
    sharing.add_argument(
        "--forward-latency-ms",
        type=float,
        default=ServerConfig.forward_latency_ms,
        metavar="MS",
        help="a forward takes no more rows than end within this, 0 = no bound",
    )
    sharing.add_argument(
        "--prompt-rows",
        type=int,
        default=ServerConfig.prompt_rows,
        help="of prompts in a forward that others are waiting for",
    )
    sharing.add_argument("--groups", type=int, default=ServerConfig.groups, help="that take turns (SpecEdge: 2)")
    parser.add_argument(
        "--keys",
        default=ServerConfig.keys,
        metavar="FOLDER",
        help="keys of those who may come in, encrypted (specnav keys); without, on loopback only",
    )
    parser.add_argument(
        "--deterministic", action="store_true", help="slower: no forward depends on which rows share it"
    )
    parser.add_argument("--compile", action="store_true", help="torch compiles the layers of the models")
    parser.add_argument(
        "--insecure", action="store_true", help="no keys, though other machines reach the address"
    )
    parser.add_argument(
        "--log-contents", action="store_true", help="let the log quote prompts and answers, to find an error"
    )
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    given = build_parser().parse_args(arguments)
    try:
        config = ServerConfig(**vars(given))
        from cloud_verifier.serving import serve

        return serve(config)
    except (VerifierError, SpecdecError) as error:
        print(f"cloud_verifier: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
