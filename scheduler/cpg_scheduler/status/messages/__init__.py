"""All sentences of conditions and events.

They follow kube-scheduler's pattern: what is wrong, with counts; where; what would help. The same state gives the same
sentence, so a condition is written once and not at every attempt. Beside a message stands its cause, without numbers:
conditions with the same cause differ in numbers alone.

Quoted in them are the reasons of filters, the problems of PreBind plugins, the problems of the API model's validation
and the answers of the API server, each in the words of its origin.
"""
