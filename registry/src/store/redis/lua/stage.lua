-- Keeps events aside that follow those of an import, or forgets them all if it is given none.
-- KEYS: the events
-- ARGV: number of events before, for how many seconds they are kept; the events
-- Returns 1, and 1 again for a repeat; 0 if other events are aside.
local before, count = tonumber(ARGV[1]), #ARGV - 2
if count == 0 then
  redis.call('UNLINK', KEYS[1])
  return 1
end
local there = redis.call('LLEN', KEYS[1])
if there ~= before and there ~= before + count then return 0 end
if there == before then each('RPUSH', KEYS[1], 3, #ARGV) end
redis.call('EXPIRE', KEYS[1], ARGV[2]) -- a WAIT after a repeat waits for the events, too
return 1
