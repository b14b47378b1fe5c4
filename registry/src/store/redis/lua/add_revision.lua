-- Stores a revision that comes before all others of its name, unless it is there.
-- KEYS: revisions, history
-- ARGV: revision, definition
-- Returns 1, or 0 if it is there, as after the first of several attempts.
if redis.call('HSETNX', KEYS[1], ARGV[1], ARGV[2]) == 0 then return 0 end
redis.call('ZADD', KEYS[2], 0, ARGV[1])
return 1
