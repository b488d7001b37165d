"""An app of Hydra as any user's."""

import os
import pathlib
import time

import hydra
from omegaconf import DictConfig, OmegaConf


@hydra.main(version_base=None, config_path=None, config_name=None)
def main(config: DictConfig) -> float:
    folder = pathlib.Path(hydra.core.hydra_config.HydraConfig.get().runtime.output_dir)
    attempt = os.environ["MUSTER_ATTEMPT"]
    (folder / f"attempt-{attempt}").write_text(f"{os.getcwd()} {hydra.core.hydra_config.HydraConfig.get().job.id}")
    print(OmegaConf.to_yaml(config))
    if config.get("bad") == config.x:
        raise ValueError(f"x={config.x} is bad")
    if config.get("killed") == config.x:
        os.kill(os.getpid(), 9)
    if config.get("slow") == config.x and attempt == "1":
        time.sleep(600)
    return 2.0 * config.x


if __name__ == "__main__":
    main()
