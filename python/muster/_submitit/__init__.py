"""What muster.submitit_plugin is made of. Nothing here is imported unless submitit is there."""
