-- Makes an incarnation a member. An earlier one of its name is dead then, and so is its process.
-- KEYS: members, when each was last seen, the dead, the last process of each name, the excused
-- ARGV: name, incarnation, process, the member
-- Returns who is alive, or nothing where this incarnation is dead, or a younger process lives.
local name, incarnation, process, entry = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local function is_dead(kind, id)
  return redis.call('ZSCORE', KEYS[3], kind .. name .. '/' .. id)
end
local other = entries[name] and cjson.decode(entries[name])
local last_process = redis.call('HGET', KEYS[4], name)
local lives = other and silence(name) <= other.lease_ms
if is_dead('incarnation ', incarnation) or lives and is_dead('process ', process) then
  return false
end
local former = other and other.incarnation
if former and former ~= incarnation then remove(name, former) end
if last_process and last_process ~= process then remember_dead('process ', name, last_process) end
redis.call('HSET', KEYS[4], name, process)
put(name, entry)
see(name)
return alive()
