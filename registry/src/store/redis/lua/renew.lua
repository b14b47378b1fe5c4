-- Renews the lease of a member, and removes all others that were silent for longer than theirs.
-- Silence that no server could have heard is no silence: if nobody renewed for half a lease, this
-- server may have been away, and if the clock went back, it counts from now on. Each member gets its
-- whole lease anew only once until it is heard again, then half a lease of such a time counts, too:
-- a survivor that is always late would keep the dead alive.
-- KEYS: members, when each was last seen, the dead, the last process of each name, the excused
-- ARGV: name, incarnation, the member, the digest of the members that the caller knows or ''
-- Returns who is alive, or nothing where this incarnation is no member.
local name, incarnation, entry, known = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local stored = redis.call('HGET', KEYS[1], name)
local me = stored and cjson.decode(stored)
if not me or me.incarnation ~= incarnation then return false end
local all, unheard_ms = redis.call('HGETALL', KEYS[1]), math.huge
for i = 1, #all, 2 do unheard_ms = math.min(unheard_ms, silence(all[i])) end
local excess_ms = unheard_ms - me.lease_ms / 2
redis.call('HSET', KEYS[1], name, entry)
see(name)
for i = 1, #all, 2 do
  local other, last_seen = all[i], seen[all[i]] or now
  if other ~= name and last_seen > now then
    set_seen(other, now)
  elseif other ~= name and excess_ms > 0 and redis.call('SADD', KEYS[5], other) == 1 then
    set_seen(other, now)
  elseif other ~= name then
    if excess_ms > 0 then set_seen(other, last_seen + math.floor(excess_ms)) end
    -- Decoding all members would take most of the script's time.
    local lease_ms = tonumber(all[i + 1]:match('"lease_ms":(%d+)'))
    if silence(other) > lease_ms then remove(other, cjson.decode(all[i + 1]).incarnation) end
  end
end
return alive(known)
