# Copyright 2026 spec_vlm_nav maintainers
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

"""
The stop phrases of English, German, French and Spanish: lower case, no accents or punctuation.

Further languages are in `stop_languages`; `stop_words` explains how the phrases combine. Bars
separate phrases.
"""

from __future__ import annotations


def _words_of(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Words and phrases that may precede a stop without changing its meaning.
OPENERS = """
    please | pls | plz | now | ok | okay | hey | hi | hello | oh | ah | uh | no | nope
    | nooo | so | just | simply | kindly | robot | dog | doggy | go2 | unitree | you
    | you there | come on | can you | could you | would you | will you | can you please
    | would you mind to | you must | you should | you have to | you need to | must
    | i want you to | i need you to | i order you to | i command you to | i said | i say
    | i told you to | i tell you to | command | immediately | instantly | right now
    | at once | quick | quickly | fast | urgent | attention | warning | alert | help
    | careful | watch out | look out | the robot | my god | for gods sake | do a | do an
    | perform a | perform an | make a | make an | execute | execute a | execute an | trigger
    | trigger the | trigger an | activate | activate the | press | press the | hit the
    | immediate | let s | lets | let us | let it | we should | we must | we need to
    | it should | it must | make it | make the robot | make him | tell it to
    | tell the robot to | tell him to
    | bitte | jetzt | sofort | roboter | hund | hallo | he | nein | du | kannst du
    | konntest du | konnen sie | du sollst | du musst | ich sagte | ich habe gesagt
    | achtung | vorsicht | schnell | mal | also | los | der roboter soll
    | s il te plait | s il vous plait | stp | svp | maintenant | tout de suite | non | allez
    | peux tu | pouvez vous | tu dois | je t ai dit de | je te dis de | vite
    | attention a toi | le robot doit | immediatement
    | por favor | ahora | ahora mismo | ya | oye | eh | inmediatamente | puedes | podrias
    | puede | debes | te digo que | te dije que | rapido | cuidado | atencion
    | el robot debe | de inmediato
"""

# Open heads: anything but a place or a condition may follow.
OPEN_HEADS = """
    stop | stopp | hait | stap | sotp | stpo | tsop | sto | stopo | emergencystop | stops | halt
    | halted | freeze | frezze | abort | cancel | cease | quit moving | quit it | wait
    | pause | dont move | do not move | don t move | dont you move | do not you dare move
    | dare to move | emergency stop | emergency halt | emergency brake | emergency shutdown
    | emergency off | e stop | estop | full stop | all stop | dead stop | hard stop
    | soft stop | quick stop | safety stop | protective stop | stop command | come to a stop
    | come to a halt | come to a standstill | come to a complete stop | stand still
    | standstill | keep still | be still | hold still | stay still | stay put | hold it
    | hold on | hold your position | hold position | no more moving | no more movement
    | no more motion | no moving | whoa | woah | brake | brakes | put on the brakes
    | the brakes | kill switch | panic | kill it | kill power | kill the power
    | kill the motors | shut down | shutdown | shut off | shut it off | power off
    | power down | switch off | abort mission | stop button | emergency stop button
    | halte | halten | stoppen | stoppe | stoppt | anhalten | bleib stehen | bleibt stehen
    | bleiben sie stehen | stehen bleiben | stehenbleiben | steh still | stehe still
    | still stehen | stillstehen | stillgestanden | nicht bewegen | beweg dich nicht
    | bewege dich nicht | bewegen sie sich nicht | keine bewegung | nicht mehr bewegen
    | nicht weiter | nicht weitergehen | geh nicht weiter | fahr nicht weiter
    | lauf nicht weiter | notaus | not aus | nothalt | not halt | notstopp | not stopp
    | notstop | not stop aus | notbremse | abbrechen | abbruch | brich ab | brechen sie ab
    | warte | warten | warten sie | wart | aufhoren | hor auf | horen sie auf | schluss
    | schluss jetzt | es reicht | einfrieren | bremsen | brems | bremse
    | arrete | arretes | arretez | arreter | arret | arrete toi | arretez vous | t arreter
    | arret d urgence | arret immediat | stoppez | ne bouge pas | ne bougez pas
    | ne bouge plus | ne bougez plus | bouge pas | bougez pas | bouge plus | plus un geste
    | pas un geste | ne pas bouger | ne plus bouger | attends | attendez | attend | attendre
    | reste immobile | restez immobile | immobile | immobilise toi | fige toi | figez vous
    | annule | annulez | annuler | abandonne | abandonnez | interromps | interrompez
    | ca suffit | suffit | freine | freinez
    | pare | paren | parar | parate | parese | detente | detengase | deten | detenga
    | detener | detenerse | alto | alto ahi | quieto | quieta | quietos | quedate quieto
    | quedate quieta | quedate ahi | no te muevas | no se mueva | no os movais | no muevas
    | no moverse | no te mueva | no avances | no avance | no sigas | no siga | espera
    | espere | esperate | parada de emergencia | paro de emergencia | parada inmediata
    | emergencia | basta | ya basta | cancela | cancelar | aborta | abortar | congelate
    | frena | frene | frenar | suelta todo
"""

# Closed heads: they also begin other sentences, so only FILLERS may follow.
CLOSED_HEADS = """
    stay | stay there | stay here | stay where you are | stay right there | remain there
    | remain where you are | remain still | stand | stand there | stand by | stand down
    | hold | hold there | enough | that s enough | thats enough | that is enough
    | that will do | that ll do | quit | end | end it
    | off | turn off | turn it off | turn yourself off | turn the robot off | don t go
    | dont go | do not go | don t walk | dont walk | do not walk | don t drive
    | do not drive | dont drive | don t turn | do not turn | don t continue
    | do not continue | dont continue | don t proceed | do not proceed | not another step
    | not one step further | not a step further | no further | not any further | no more
    | emergency | danger | mayday | kill | break | cut | cut it out | knock it off | drop it
    | forget it | forget about it | never mind | nevermind | back off | time out | timeout
    | motors off | red button | interrupt | terminate | suspend | disengage | stopping
    | freezing | halting | hold your horses | get still | stay calm | stay back | stall
    | rest | desist | idle | no
    | bleib | bleibt | bleib da | bleib hier | bleib dort | bleib wo du bist | steh | aus
    | ende | genug | ruhe | stehen | stand bitte | lass es | lass das | vergiss es
    | pausiere
    | reste la | restez la | reste ou tu es | restez ou vous etes | reste ici | assez | fin
    | c est bon | laisse tomber | pas bouger | termine | eteins toi
    | para | para ya | parada | paro | un momento | suficiente | fin ya | apagate | apagado
    | quedate | dejalo | olvidalo | termina
"""

# Words that may follow a closed head, and that never turn an open head into an instruction.
FILLERS = """
    please | pls | now | right now | here | there | right here | right there | at once
    | immediately | instantly | this instant | this second | robot | the robot | dog | it
    | that | this | you | everything | all | ok | okay | thanks | thank you | again
    | already | further | any further | anywhere | any more | anymore | more | still | put
    | moving | yourself | sir | buddy | man | now please | thing | the thing | the mission
    | mission | the task | the instruction | go2
    | bitte | jetzt | sofort | mal | doch | endlich | roboter | hund | hier | dort | da
    | danke | stehen
    | auf der stelle | augenblicklich | nun | schon | jetzt sofort
    | s il te plait | s il vous plait | stp | svp | maintenant | tout de suite | ici | la
    | immediatement | le robot | merci | sur le champ | enfin | toi | vous | net
    | por favor | ahora | ahora mismo | ya | aqui | ahi | alli | inmediatamente | el robot
    | gracias | de inmediato | en seguida | de una vez | de moverte | de moverse
    | de caminar | de andar | todo | de avanzar | de girar
    | en el acto | quieto | quieta | la mision | la tarea
"""

# Words of a place or condition: after an open head they turn the sentence into an instruction.
PLACES = _words_of(
    """
    at by near next beside besides in inside into on onto under underneath below beneath above
    behind before after around between close closer opposite against along alongside across over
    facing within outside where when whenever once unless if as upon past to in-front short
    an am bei beim vor vorm hinter neben unter auf im zwischen sobald wenn nach gegenuber nahe
    kurz falls dicht sowie
    a au aux devant derriere pres chez dans sur sous entre contre vers quand lorsque des apres
    avant si face cote aupres
    en al junto cerca delante detras frente ante bajo sobre cuando antes despues donde lado
    enfrente
    """
)
# Words allowed between a head and a place: "stop right at the door", "halt kurz vor der Wand".
ADVERBS = _words_of("right just directly exactly only shortly immediately genau direkt juste")

# Phrases that begin like places or conditions but are not.
NO_PLACES = """
    at once | at this instant | at this moment | in place | in your tracks | in the name of
    | in position | on the spot | on the double | where you are | where you stand
    | where you re standing | where it is | where it stands | as fast as you can
    | as quickly as you can | as quick as you can | as soon as possible | as soon as you can
    | as you are | to be safe | if you can | if you can hear me | if you hear me
    | by all means | by yourself | in gods name | a second | a sec | a moment | a minute
    | a bit | a little | a while | on the brakes | to a stop | after me | to move | over
    | auf der stelle | an ort und stelle | im moment | wenn du mich horst
    | a l instant | sur le champ | sur place | en place | des maintenant | au nom de
    | en el acto | en seguida | en el lugar | en tu lugar | al instante | en este instante
"""

NEGATIONS = _words_of("inte ikke niet")  # negations after the verb: "stanna inte"
# After these heads "a" and "an" are English articles ("stop a person"), unless a foreign one follows.
ENGLISH_HEADS = _words_of(
    "stop halt freeze abort cancel pause wait emergency dont don do full hold stand stay keep"
)
ROMANCE_ARTICLES = _words_of("la le l les los las un une una lo gli i cote droite gauche")
GERMAN_ARTICLES = _words_of(
    "der die das dem den einer einem einen ein jeder jedem dieser diesem diesen meiner meinem "
    "deiner deinem seiner seinem ihrer ihrem unserer unserem"
)
