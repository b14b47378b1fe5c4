-- Ends a membership that is suspect or was silent for longer than its lease.
-- ARGV: name, incarnation, '1' if it is suspect or ''
-- Returns 1 if that incarnation is dead, and then it is for ever; else 0.
local old = redis.call('HGET', KEYS[1], ARGV[1])
local member = old and cjson.decode(old)
if not member or member.incarnation ~= ARGV[2] then
  died('incarnation ', ARGV[1], ARGV[2])
  return 1
end
if ARGV[3] == '' and silent(ARGV[1]) <= member.lease_ms then return 0 end
remove(ARGV[1], ARGV[2])
return 1
