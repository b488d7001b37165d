"""muster for Python trainings.

    import muster

    run = muster.init(total_steps=9000, config=vars(args))
    for step in range(run.resume(load_newest_checkpoint), 9000):
        loss = train_one_step()
        run.log(step, loss=loss)
        if run.should_stop(step):
            save(path)
            run.checkpoint(path, step)
            run.leave()

Nothing happens outside muster: the same program runs unchanged.
"""

from ._run import REQUEUE_EXIT_CODE, Run, init
from ._stop import Stop

__all__ = ["REQUEUE_EXIT_CODE", "Run", "Stop", "init"]
