-- Asks a headgate sidecar whether HAProxy may forward a request. See haproxy.cfg beside this file.
--
-- The action lua.headgate answers a refusal at once, as the sidecar says. Otherwise it leaves
--   txn.headgate             "allowed", or "unchecked" where the sidecar did not answer
--   txn.ratelimit, txn.ratelimit_policy      headers for the client, where a limit speaks

-- The sidecar answers within milliseconds, also while Redis does not. This is for one that hangs; HAProxy tries 4 times.
local timeout = 250

-- What is not handed on: other names for what the check says itself, and what belongs to the client's connection and body.
local dropped = {}
for name in ([[
  x-original-method x-original-uri x-original-url
  host connection upgrade expect te trailer content-length transfer-encoding accept-encoding
]]):gmatch("%S+") do
  dropped[name] = true
end

-- checked returns the headers of the check: those of the client, since rules may be keyed on them, and what it is about.
-- HAProxy gives lists that begin at 0, and takes lists that begin at 1.
local function checked(txn)
  local headers = {}
  for name, values in pairs(txn.http:req_get_headers()) do
    if not dropped[name] then
      headers[name] = table.move(values, 0, #values, 1, {})
    end
  end
  headers["x-forwarded-method"] = { txn.sf:method() }
  headers["x-forwarded-uri"] = { txn.sf:pathq() }
  headers["x-forwarded-host"] = { txn.sf:req_hdr("host") }
  headers["x-forwarded-for"] = { txn.sf:src() }
  return headers
end

-- from returns the first value of an answer's header, or nil.
local function from(answer, name)
  local values = answer.headers[name]
  return values and values[0]
end

core.register_action("headgate", { "http-req" }, function(txn)
  local url = txn:get_var("proc.headgate")
  local answer = core.httpclient():get({ url = url, headers = checked(txn), timeout = timeout })

  if answer.status == 200 then
    txn:set_var("txn.headgate", "allowed")
    if from(answer, "ratelimit") then
      txn:set_var("txn.ratelimit", from(answer, "ratelimit"))
      txn:set_var("txn.ratelimit_policy", from(answer, "ratelimit-policy"))
    end
    return
  end

  -- HAProxy's own answers for a server that is gone or late. The sidecar's have another type of content.
  local kind = from(answer, "content-type")
  if answer.status >= 502 and answer.status <= 504 and kind ~= "application/problem+json" then
    txn:set_var("txn.headgate", "unchecked")
    return
  end

  local reply = txn:reply({ status = answer.status, body = answer.body })
  for _, name in ipairs({ "content-type", "cache-control", "retry-after", "ratelimit", "ratelimit-policy" }) do
    local value = from(answer, name)
    if value then
      reply:add_header(name, value)
    end
  end
  txn:done(reply)
end)
