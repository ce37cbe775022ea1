# An independent count of `--limit "10/1m sliding-log" --key ip` over an access log, for the tests:
#   awk -v amount=10 -v window=60 -f sliding_log.awk access.log
# prints, for each line, the address and whether it may pass (1) or not (0).
#
# Per address it keeps the admitted instants, in whole seconds as the log has them. One counts while
# now - instant < window, also if the time of the log went back since; a new one is entered at the later
# of now and the newest; and an admission drops those that no longer count.

function days(year, month, day,    era, of_era, of_year) {
    # Days since 1970-01-01 in the Gregorian calendar, counted in years that begin in March.
    if (month <= 2) year--
    era = int(year / 400)
    of_era = year - era * 400
    of_year = int((153 * (month + (month > 2 ? -3 : 9)) + 2) / 5) + day - 1
    return era * 146097 + of_era * 365 + int(of_era / 4) - int(of_era / 100) + of_year - 719468
}

BEGIN {
    split("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec", names, " ")
    for (i in names) month[names[i]] = i
}

{
    # [17/May/2015:10:05:03 +0000]
    if (substr($5, 1, 5) != "+0000") { print "not in UTC: line " NR > "/dev/stderr"; exit 1 }
    split(substr($4, 2), part, /[\/:]/)
    now = days(part[3], month[part[2]] + 0, part[1]) * 86400 + part[4] * 3600 + part[5] * 60 + part[6]

    live = 0
    for (i = first[$1] + 1; i <= last[$1]; i++) if (now - entered[$1, i] < window) live++
    if (live + 1 > amount) { print $1, 0; next }

    while (first[$1] < last[$1] && now - entered[$1, first[$1] + 1] >= window) {
        delete entered[$1, first[$1] + 1]
        first[$1]++
    }
    newest = first[$1] < last[$1] ? entered[$1, last[$1]] : now
    entered[$1, ++last[$1]] = now > newest ? now : newest
    print $1, 1
}
