-- Ends the membership of an incarnation that is a suspect or was silent for longer than its lease.
-- KEYS: members, when each was last seen, the dead, the last process of each name, the excused
-- ARGV: name, incarnation, '1' if it is a suspect or ''
-- Returns 1 if that incarnation is dead, and then it is for ever; else 0.
local name, incarnation, is_suspect = ARGV[1], ARGV[2], ARGV[3] ~= ''
local member = entries[name] and cjson.decode(entries[name])
if not member or member.incarnation ~= incarnation then
  remember_dead('incarnation ', name, incarnation)
  return 1
end
if not is_suspect and silence(name) <= member.lease_ms then return 0 end
remove(name, incarnation)
return 1
