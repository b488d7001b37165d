"""An app of Hydra. As one sweep of muster: python3 train.py -m hydra/launcher=muster lr=0.01,0.1"""

import time

import hydra
from omegaconf import DictConfig


@hydra.main(version_base=None, config_path=".", config_name="config")
def main(config: DictConfig) -> float:
    weight = 0.0
    for _ in range(config.steps):
        weight += config.lr * (1.0 - weight)
        time.sleep(0.01)
    loss = (1.0 - weight) ** 2
    print(f"lr {config.lr}: loss {loss:.6f}")
    return loss


if __name__ == "__main__":
    main()
