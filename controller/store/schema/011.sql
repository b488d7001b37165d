-- What the attempt of a start that is launching was given of musterd's own machine: JSON; null: nothing.
ALTER TABLE actions ADD COLUMN share TEXT CHECK (share IS NULL OR json_valid(share));
