"""A plain training loop under muster: curves, a true FROM, and orderly stops."""

import json
import os
import random
import time

import muster

STEPS = 200


def main() -> None:
    run = muster.init(total_steps=STEPS, config={"lr": 0.1})
    path = os.path.join(run.checkpoint_folder or ".", "state.json")
    state = {"step": 0, "weight": 0.0}
    if os.path.exists(path):
        with open(path) as file:
            state = json.load(file)
    random.seed(state["step"])
    for step in range(run.resume(state["step"]) + 1, STEPS + 1):
        gradient = 2 * (state["weight"] - 3) + random.gauss(0, 0.1)
        state = {"step": step, "weight": state["weight"] - 0.1 * gradient}
        run.log(step, loss=(state["weight"] - 3) ** 2)
        stops = run.should_stop(step)
        if step % 50 == 0 or stops:
            with open(path + ".new", "w") as file:
                json.dump(state, file)
            os.replace(path + ".new", path)
            run.checkpoint(path, step)
        if stops:
            run.leave()
        time.sleep(0.01)


if __name__ == "__main__":
    main()
