-- Writes next to nothing, so that a WAIT after it waits for all that was written before it: on a
-- connection that wrote nothing, WAIT returns at once.
-- KEYS: any
return redis.call('SET', KEYS[1], '', 'EX', 60)
