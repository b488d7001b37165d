"""Hydra's multirun as a sweep of muster: python app.py -m hydra/launcher=muster lr=0.1,0.2"""
