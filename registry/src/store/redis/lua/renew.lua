-- Renews the lease of a member, and removes all others that were silent for longer than theirs.
-- Silence that no server could have heard is no silence: if nobody renewed for half a lease, this
-- server may have been away, and if the clock went back, it counts from now on. Each member gets its
-- whole lease anew only once until it is heard again, then half a lease of such a time counts, too:
-- a survivor that is always late would keep the dead alive.
-- KEYS: members, when each was last seen, the dead, the last process of each name, the excused
-- ARGV: name, incarnation, the member, the digest of the members that the caller knows or ''
-- Returns who is alive, or nothing where this incarnation is no member.
local name, incarnation, entry, known = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local me = entries[name] and cjson.decode(entries[name])
if not me or me.incarnation ~= incarnation then return false end
local unheard_ms = math.huge
for other in pairs(entries) do unheard_ms = math.min(unheard_ms, silence(other)) end
local excess_ms = unheard_ms - me.lease_ms / 2
put(name, entry)
see(name)
for i = 1, #rows, 2 do
  local other, last_seen = rows[i], seen[rows[i]] or now
  if other ~= name and last_seen > now then
    set_seen(other, now)
  elseif other ~= name and excess_ms > 0 and redis.call('SADD', KEYS[5], other) == 1 then
    set_seen(other, now)
  elseif other ~= name then
    if excess_ms > 0 then set_seen(other, last_seen + math.floor(excess_ms)) end
    -- Found without decoding, which each renewal would do with each member.
    local _, before = rows[i + 1]:find('"lease_ms":', 1, true)
    local lease_ms = tonumber(rows[i + 1]:match('^%d+', before + 1))
    if silence(other) > lease_ms then remove(other, cjson.decode(rows[i + 1]).incarnation) end
  end
end
return alive(known)
